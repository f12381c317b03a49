"""What can be known to be wrong before anything is read: an entity and options in, one clear error out, or none."""

from twinbus.errors import NotAllowed
from twinbus.pipeline.source import option_table as names
from twinbus.pipeline.source.entity_access import EntityAccess
from twinbus.pipeline.source.options import Mode, SourceOptions
from twinbus.pipeline.source.starting_points import chosen_heads


async def preflight(access: EntityAccess, options: SourceOptions) -> None:
    """Raises what the namespace has against it (EntityNotFound, Unauthorized ...), NotAllowed or OptionError."""
    await chosen_heads(access, options)
    if options.mode is Mode.CONSUME:
        await access.check_claims()
    if access.is_own:
        return
    if options.fails_on_data_loss:
        raise NotAllowed(
            f"{names.FAIL_ON_DATA_LOSS} needs a twinbus namespace: this one does not report lost messages."
        )
    if options.mode is Mode.CONSUME and options.fragments is not None:
        raise NotAllowed(
            f"{names.FRAGMENTS} needs a twinbus namespace for mode=consume: this one chooses the fragments itself."
        )
