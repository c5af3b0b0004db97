-- Regimes of jobs: merges consecutive reports at one batch size.
SELECT run, job_id, min(epoch) AS epoch, max(epoch + epochs) AS epoch_end, batch_size
FROM (
    SELECT *, sum(changed::INT) OVER (PARTITION BY run, job_id ORDER BY epoch, round) AS regime
    FROM (
        SELECT run, round, job_id, epoch, epochs, batch_size, batch_size IS DISTINCT FROM
            lag(batch_size) OVER (PARTITION BY run, job_id ORDER BY epoch, round) AS changed
        FROM telemetry SEMI JOIN ({described}) USING (run, job_id)
    )
)
GROUP BY run, job_id, regime, batch_size ORDER BY run, job_id, epoch
