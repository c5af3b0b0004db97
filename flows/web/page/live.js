"use strict";
(() => {
  const EVERY = 3000;
  const box = document.getElementById("auto-refresh");
  const connection = document.getElementById("connection");
  let tag = "";
  let asks = false;

  // Replaces the parts that changed, but for the one that somebody is in.
  async function refresh() {
    if (asks) return;
    asks = true;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store", redirect: "error" });
      if (answer.status === 401) return location.reload();
      if (answer.ok) {
        tag = answer.headers.get("ETag") ?? "";
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const part of document.querySelectorAll("[data-live]")) {
          const fresh = page.getElementById(part.id);
          if (!fresh || part.contains(document.activeElement) || fresh.innerHTML === part.innerHTML) continue;
          const open = [...part.querySelectorAll("details")].map((one) => one.open);
          const scrolled = [...part.querySelectorAll(".scroll, .nodes")].map((one) => one.scrollTop);
          part.replaceChildren(...fresh.childNodes);
          part.querySelectorAll("details").forEach((one, number) => { one.open = open[number] ?? false; });
          part.querySelectorAll(".scroll, .nodes").forEach((one, number) => { one.scrollTop = scrolled[number] ?? 0; });
        }
      }
      connection.textContent = answer.ok || answer.status === 304 ? "" : "The service does not answer.";
    } catch {
      connection.textContent = "The server does not answer.";
    } finally {
      asks = false;
    }
  }

  addEventListener("submit", (sent) => {
    const question = sent.target.dataset.confirm;
    if (question && !confirm(question)) sent.preventDefault();
  });

  // Prefect's UI, on this address, keeps the installation's secret here: one login opens both.
  const KEPT = "prefect-password";
  const login = document.querySelector("form.login");
  if (login) {
    const token = login.elements.token;
    login.addEventListener("submit", () => {
      const secret = token.value.trim();
      if (/^[!-~]+:[!-~]+$/.test(secret)) localStorage.setItem(KEPT, btoa(secret));
    });
    if (document.querySelector("[role=alert]")) localStorage.removeItem(KEPT);
    const kept = localStorage.getItem(KEPT);
    if (kept) {
      token.value = atob(kept);
      login.requestSubmit();
    }
  }
  document.querySelector("form[action$='/logout']")?.addEventListener("submit", () => localStorage.removeItem(KEPT));

  if (document.querySelector("[data-live]")) setInterval(() => { if (box?.checked && !document.hidden) refresh(); }, EVERY);
})();
