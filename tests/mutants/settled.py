"""A pytest plugin: Hypothesis draws the same examples each time, and stops at the first that fails."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

# These judge how fast and how often examples are drawn. Of a mutant, and on a busy machine, they would fail where no
# assertion does, and count it as found. The others judge the test itself, and stay.
OF_SPEED = (
    HealthCheck.too_slow,
    HealthCheck.filter_too_much,
    HealthCheck.data_too_large,
    HealthCheck.large_base_example,
)

settings.register_profile(
    "settled",
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=OF_SPEED,
)
settings.load_profile("settled")
