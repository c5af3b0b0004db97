# The command of a gang whose nodes may come and go: sh -c "$(cat torchrun.sh)".
# Alone, a container has no network, and cannot find its own name.
test "$MASTER_ADDR" || set -- --local-addr localhost
# Agents that share a store wait in vain for new nodes (PyTorch 2.13): each new gang gets its own.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
exec torchrun --nnodes "1:${NNODES:-1}" --nproc-per-node "$LOCAL_WORKERS" "$@" \
    --rdzv-backend c10d --rdzv-endpoint "${MASTER_ADDR:-localhost}:${MASTER_PORT:-0}" \
    --rdzv-id "$SHOCKWAVE_LEASE" --rdzv-conf last_call_timeout=3 --max-restarts 3 elastic.py
