"""The configuration of the private Slurm: its nodes, users and accounting."""

import os
import secrets
import shutil
import socket
from pathlib import Path

TYPES = {"n1": "a100", "n2": "a100", "n3": "v100", "n4": "v100"}
"""GPU types by node."""
GPUS = 4
"""GPUs of a node."""
NODES = tuple(TYPES)
USERS = {"alice": 64101, "bob": 64102, "carol": 64103, "operator": 64104}
"""Users without rights, of whom `operator` is one of Slurm's operators, by id.

Jobs of alice and bob wait (QOS `wait`) until an operator changes their QOS to `run`; those of
carol, the operator and root start when they fit.
"""

CONF = """
ClusterName=lab
SlurmctldHost=HOST(127.0.0.1)
SlurmctldPort=6817
SlurmUser=slurm
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge/socket
CredType=cred/munge
StateSaveLocation=FOLDER/state
SlurmdSpoolDir=FOLDER/spool/%n
SlurmctldPidFile=FOLDER/own/slurmctld
SlurmdPidFile=FOLDER/own/%n
SlurmctldLogFile=FOLDER/log/slurmctld.log
SlurmdLogFile=FOLDER/log/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=15
KillWait=10
MinJobAge=300
MaxJobCount=20000
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,bf_continue,sched_min_interval=0,sched_interval=5,batch_sched_delay=0
PriorityType=priority/multifactor
PreemptType=preempt/none
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=6819
# Clients of slurmdbd do not read AuthInfo: the socket of munged goes here for them.
AccountingStoragePass=FOLDER/munge/socket
AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:v100
AccountingStorageEnforce=associations,limits,qos
DebugFlags=NO_CONF_HASH
PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-00:00:00 DefMemPerCPU=100 State=UP
"""

DBD_CONF = """
AuthType=auth/munge
AuthInfo=socket=FOLDER/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=6819
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=3306
StorageUser=slurm
StoragePass=PASSWORD
StorageLoc=slurm
LogFile=FOLDER/log/slurmdbd.log
PidFile=FOLDER/own/slurmdbd
CommitDelay=1
"""


def write_files(folder: Path, settings: dict[str, str]) -> None:
    """Write the configuration of all daemons."""
    folder.chmod(0o755)
    for name in ("etc", "log", "own", "pid", "dev", "munge", "state", "db", "spool", "bin"):
        (folder / name).mkdir(mode=0o755)
    shutil.chown(folder / "state", "slurm", "slurm")
    shutil.chown(folder / "db", "mysql", "mysql")
    for name in ("log", "own"):
        (folder / name).chmod(0o1777)
    key, password = folder / "munge" / "key", secrets.token_hex(16)
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    people = "".join(f"{user}:x:{uid}:{uid}::/:/bin/sh\n" for user, uid in USERS.items())
    groups = "".join(f"{user}:x:{uid}:\n" for user, uid in USERS.items())
    (folder / "etc" / "passwd").write_text(Path("/etc/passwd").read_text() + people)
    (folder / "etc" / "group").write_text(Path("/etc/group").read_text() + groups)
    host, gres = socket.gethostname().partition(".")[0], []
    conf = CONF.replace("HOST", host)
    for place, (node, kind) in enumerate(TYPES.items()):
        (folder / "spool" / node).mkdir()
        for gpu in range(GPUS):
            os.mknod(folder / "dev" / f"{node}g{gpu}", 0o20666, os.makedev(1, 3))
        conf += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={6821 + place} "
        conf += "CPUs=32 Sockets=1 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=64000 "
        conf += f"Gres=gpu:{kind}:{GPUS} Feature={kind}\n"
        gres.append(f"NodeName={node} Name=gpu Type={kind} File={folder}/dev/{node}g[0-{GPUS - 1}]")
    kept = [line for line in conf.splitlines() if line.partition("=")[0] not in settings]
    kept += [f"{name}={value}" for name, value in settings.items()]
    named = {
        "slurm.conf": "\n".join(kept).replace("FOLDER", str(folder)) + "\n",
        "gres.conf": "\n".join(gres) + "\n",
        "slurmdbd.conf": DBD_CONF.replace("FOLDER", str(folder)).replace("PASSWORD", password),
        "password": password,
    }
    for name, text in named.items():
        (folder / "etc" / name).write_text(text)
    shutil.chown(folder / "etc" / "slurmdbd.conf", "slurm", "slurm")
    for name in ("slurmdbd.conf", "password"):
        (folder / "etc" / name).chmod(0o600)
