"""What makes two runs the same one for a checkpoint."""

from fedwca.config.resolve_config import resolve_plan
from fedwca.config.run_config import RunConfig
from fedwca.results.differing_settings import differing_settings
from fedwca.results.run_identity import run_identity
from fedwca.results.settings_without_effect import SAME_NUMBERS


def test_what_changes_no_number_is_a_list_of_fields() -> None:
    assert set(SAME_NUMBERS) <= set(RunConfig.model_fields)
    plan = resolve_plan({}).described()
    changed = {**plan, "config": {**plan["config"], **dict.fromkeys(SAME_NUMBERS, 3)}}
    assert differing_settings(plan, changed) == {}
    assert run_identity({**plan, "identity_without": SAME_NUMBERS}) == run_identity(
        {**changed, "identity_without": SAME_NUMBERS}
    )
    config = RunConfig(workers=3).model_dump(mode="json")
    assert run_identity(plan) == run_identity({**plan, "config": {**plan["config"], "workers": config["workers"]}})
    assert run_identity(plan) != run_identity(changed)
