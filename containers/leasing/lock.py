"""One scheduler at a time on a cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from predictor.errors import InputError, WarehouseBusy


@contextmanager
def lock_storage(storage: Path) -> Iterator[None]:
    """Lock a cluster's storage for a scheduler process.

    Raises:
        InputError: The storage cannot be written.
        WarehouseBusy: Another scheduler has the lock.
    """
    import fcntl

    try:
        storage.mkdir(parents=True, exist_ok=True)
        opened = (storage / ".scheduler").open("a")
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise InputError(str(storage), problem, "see shockwave cluster check") from None
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            remedy = "wait for it or stop it"
            raise WarehouseBusy(str(storage), "another scheduler uses it", remedy) from None
        yield
