"""Whether the jobs of a run may share GPUs."""

from predictor.errors import InputError
from predictor.throughput import UNTYPED, Profile
from solver.policies import PACKED, parameters, policy_class
from tasks.record import Fork, RuntimeKind, Settings, get_values


def shares_gpus(settings: Settings, profile: Profile, service: bool) -> bool:
    """Return whether jobs may share GPUs under the policy.

    A run whose jobs may share GPUs records the pairs of its own models, perhaps none, for its
    forks. Other runs record no pairs, so forks under such a policy are refused.

    Args:
        settings: The settings; for a fork, the requested ones.
        profile: The throughputs; for a fork, those recorded by its run.
        service: Whether the run is a service's.

    Raises:
        InputError: Sharing was requested, but the throughputs have no pairs, or the run is a
            service, on a Slurm or on another package's runtime; or it is a fork of a run without
            pairs.
    """
    own = settings.runtime in {*RuntimeKind} - {RuntimeKind.SLURM} and not service
    asked = bool(get_values(settings.parameters).get(PACKED))
    if asked and not own:
        where = "a service" if service else f"the runtime {settings.runtime}"
        raise InputError(
            f"parameters.{PACKED}",
            f"{where} has no jobs that share GPUs",
            f"give the runtime {RuntimeKind.VIRTUAL}, or leave the parameter out",
        )
    packs = own and _would_pack(settings)
    if not packs or profile.pairs or any(map(_would_pack, settings.forked[:1])):
        return packs
    if settings.forked and profile.gpu_types != (UNTYPED,):  # generated jobs have no pairs
        by = f"--policy {settings.policy}{f' --set {PACKED}=1' * asked}"
        raise InputError(
            f"parameters.{PACKED}" if asked else "policy",
            f"{settings.policy} lets jobs share GPUs, but the run recorded no throughputs of pairs",
            f"run its workload anew: shockwave simulate {by} --throughputs FILE; "
            f"or fork it with {PACKED}=0",
        )
    if asked:
        raise InputError(
            f"parameters.{PACKED}",
            "the throughputs have no pairs of jobs",
            "give a table with pairs (docs/traces.md), or leave the parameter out",
        )
    return packs


def _would_pack(settings: Settings | Fork) -> bool:
    """Return whether the policy lets jobs share GPUs, by its parameter or by default."""
    default = parameters(policy_class(settings.policy)).get(PACKED, 0.0)
    return bool(get_values(settings.parameters).get(PACKED, default))
