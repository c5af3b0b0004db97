"""Valid files of every format that the command line reads, for mutations."""

import gzip
import json
import os
from pathlib import Path

from harness.attacks import requests, tampering
from harness.attacks.commands import called
from harness.attacks.stopped import make_service


def make(folder: Path) -> int:
    """Make valid files of all formats, by commands where they make them."""
    os.chdir(folder)
    code = called(
        ("workload", "generate", "small", "--jobs", 4, "--seed", 1, "--longest-seconds", 3000)
    )
    names = ("jobs.trace", "throughputs.json", "regimes.csv")
    for path, name in zip(sorted(Path("small").iterdir(), key=kind_of), names, strict=True):
        path.rename(name)
    tampering.make(folder / "w")
    code += called(("sql", "FROM run_summary", "--warehouse", "w", "--json"))
    run = next(path.name[4:] for path in Path("w/records").glob("*/run=srtf*"))
    code += called(("run", "export", run, "run.tar", "--warehouse", "w"))
    for name, text in TEXT_FILES.items():
        Path(name).write_text(text.format(storage=folder / "storage"))
    Path("rates.csv.gz").write_bytes(gzip.compress(Path("rates.csv").read_bytes(), mtime=0))
    tokens = make_service(folder / "s")
    requests.make(folder / "requests", tokens)
    return code


def kind_of(path: Path) -> int:
    return [".trace", ".json", ".csv"].index(path.suffix)


TEXT_FILES = {
    "tiresias.csv": (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\n"
        "0,1,0,606,vgg19,164,30\n1,8,30,133,resnet50,147,23\n2,2,53,10,lstm,1000,0\n"
    ),
    "table.csv": (
        "at,seconds,gpus,user,model\n0,1000,1,red,a\n2020-01-01 10:00:00,500.5,2,blue,b\n"
        "7,800,4,,LM\n"
    ).replace("2020-01-01 10:00:00", "5"),
    "philly.csv": "timestamp,duration,num_gpus,user,vc\n0,1000,1,u,v\n60,2000,2,u,v\n",
    "sacct.txt": (
        "JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|AllocTRES\n"
        "7|a|ann|COMPLETED|2026-10-05T08:00:00|2026-10-05T08:00:10|2026-10-05T09:00:10|3600|"
        "cpu=2,gres/gpu=2\n7.0|a||COMPLETED|2026-10-05T08:00:10|2026-10-05T08:00:10|"
        "2026-10-05T09:00:10|3600|cpu=2\n8|b|bob|PENDING|2026-10-05T08:00:00|Unknown|Unknown|0|\n"
    ),
    "attempts.json": (
        '[{{"status": "Pass", "vc": "v", "jobid": "a_1", "user": "u", "submitted_time": '
        '"2017-10-07 01:00:00", "attempts": [{{"start_time": "2017-10-07 01:01:00", "end_time": '
        '"2017-10-07 01:09:00", "detail": [{{"ip": "m1", "gpus": ["gpu0", "gpu1"]}}]}}]}}]'
    ),
    "spec.csv": (
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,4,8,9\n"
    ),
    "cluster.toml": (
        'storage = "{storage}"\nuser = "1000:1000"\ngrace_seconds = 5\nhung_rounds = 3\n'
        'mounts = ["/mnt/a"]\nnetwork = ""\n[limits]\nmemory = "1g"\npids = 64\nscratch = "64m"\n'
        'cpus = 1.5\nfolder = "1g"\n[[nodes]]\nname = "one"\nendpoint = "unix:///no/docker.sock"\n'
        'gpu_type = "gpu"\nimage = "trainer:cpu"\nslots = [{{ cpus = 1.0, cpuset = "0" }}]\n'
    ),
    "campaign.toml": (
        'name = "small"\ndescription = "d"\nseeds = [1, 2]\npolicies = ["fifo", {{ policy = '
        '"tiresias-las", name = "las", parameters = {{ promote = 1 }} }}]\n[settings]\n'
        'round_seconds = 360\nwindow = 5\n[[options]]\nname = "dear"\nrestart_seconds = 180\n'
        '[[workloads]]\nname = "stream"\njobs = 2\ncontention_factor = 2.0\n[[workloads]]\n'
        'name = "read"\ntrace = "jobs.trace"\nprofile = "throughputs.json"\n[[clusters]]\n'
        'name = "small"\ngpus = 8\ngpus_per_node = 4\n'
    ),
    "job.toml": (
        'model = "conv-small"\nbatch_size = 32\nepochs = 20\nmode = "gns"\nscale_factor = 2\n'
        "regimes = [[32, 5], [64, 15]]\nsamples_per_epoch = 2000\nmax_batch_size = 256\n"
        'tenant = "red"\nbudget = 1.5\nmax_seconds = 100000\n'
    ),
    "declared.toml": (
        'name = "n"\nmodel = "conv-small"\nbatch_size = 32\nmax_batch_size = 256\nmode = "gns"\n'
        'epochs = 20\nscale_factor = 2\nsamples_per_epoch = 2000\ntenant = "red"\nbudget = 1.5\n'
        'max_seconds = 100000\nconsolidate = true\nafter = ["x"]\nretries = 3\n'
        "deadline_seconds = 5000\n"
    ),
    "opaque.toml": (
        'kind = "opaque"\nname = "n"\nimage = "counting:1"\ncommand = ["sleep", "40"]\n'
        'environment = {{ TARGET = "120", STEP = "1" }}\nmax_seconds = 900\nseconds = 40\n'
        'scale_factor = 1\ntenant = "red"\nbudget = 2.0\narray = "1,3,5-7%2"\n'
    ),
    "jobs.toml": (
        '[[jobs]]\nkind = "checkpointing"\nname = "count"\nimage = "counting:1"\n'
        'command = ["python", "/count.py"]\nenvironment = {{ STEP = "1" }}\nmax_seconds = 9000\n'
        'seconds = 1200\narrival_seconds = 60\n[[jobs]]\nmodel = "conv-small"\nbatch_size = 32\n'
        'epochs = 20\nsamples_per_epoch = 2000\nregimes = [[32, 5], [64, 15]]\nmode = "gns"\n'
        'max_batch_size = 256\nafter = ["count"]\narrival_seconds = 90\n'
    ),
    "gavel.trace": (
        "LM (batch size 5)\tpython3 main.py\tlm\t--steps\t1\t9000\t1\t0.5\t-1.000000\t30.5\n"
        "ResNet-18 (batch size 16)\tpython3 m.py\tr\t--steps\t0\t5000\t2\t1\t-1.000000\t0\n"
    ),
    "rates.csv": (
        "gpu_type,job_type,scale_factor,partner_job_type,partner_scale_factor,steps_per_second,"
        "partner_steps_per_second\nv100,LM (batch size 5),1,,,9.5,\nk80,LM (batch size 5),1,,,2,\n"
        "v100,ResNet-18 (batch size 16),2,,,7,\nk80,ResNet-18 (batch size 16),2,,,1.5,\n"
        "v100,LM (batch size 5),1,ResNet-18 (batch size 16),1,4.0,3.0\n"
    ),
    "pools.txt": "v100:1x2@2.48,k80:1x2",
    "windows.jsonl": "".join(
        json.dumps(
            {
                **{"seq": seq, "ngpus": 4, "round_index": seq, "future_nrounds": 5},
                **{"round_duration": 120, "k": 0.001, "lam": 12.0, "rhomax": 1.0},
                **{"logapx_bases": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0], "log_zero": 1e-6},
                "jobs": [
                    {
                        **{"jobid": job, "nworkers": 1 + job % 2, "epochs": 20},
                        **{"epoch_progress": job, "epoch_dur": 63.0, "remaining": 900.5},
                        "finish_time_objective": 1000.0 + job,
                    }
                    for job in range(3)
                ],
                "reference": {"kind": "relaxed", "objective": 0.0, "rounds_per_job": [1, 1, 1]},
            }
        )
        .replace("{", "{{")
        .replace("}", "}}")
        + "\n"
        for seq in range(2)
    ),
}
"""Small valid files that no command writes."""
