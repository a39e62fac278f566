"""`NodeSettings`: the table of settings with the ways to read values into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from suiro.config.lookup import LISTENER_PREFIX, setting_fields, setting_of_listener
from suiro.config.parsing import expand_units, field_of, parse
from suiro.config.table import SettingsTable


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings(SettingsTable):
    """Every setting of a node. Defaults are Apache Kafka's unless the description gives a reason."""

    @classmethod
    def from_mapping(cls, settings: Mapping[str, str], *, source: str = "--set") -> NodeSettings:
        """Returns the defaults with `settings` (by their Kafka names) applied. Raises `ConfigError`."""
        return cls().with_settings(settings, source=source)

    def with_settings(self, settings: Mapping[str, str], *, source: str) -> NodeSettings:
        values = dict(expand_units(settings))
        of_listeners = dict(self.listener_settings)
        for name in [name for name in values if name.startswith(LISTENER_PREFIX)]:
            text = values.pop(name)
            parse(setting_of_listener(name, source), text, source=source)
            of_listeners[name.lower()] = text
        fields = {field_of(n, source): parse(n, v, source=source) for n, v in values.items()}
        return replace(self, **fields, listener_settings=tuple(sorted(of_listeners.items())))

    def for_listener(self, listener: str, mechanism: str = "") -> NodeSettings:
        """Returns the settings of one listener, or of one SASL mechanism of it."""
        values: dict[str, str] = {}
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        for start in (prefix, f"{prefix}{mechanism.lower()}.") if mechanism else (prefix,):
            for name, text in self.listener_settings:
                if name.startswith(start) and name.removeprefix(start) in setting_fields():
                    values[name.removeprefix(start)] = text
        return self.with_settings(values, source=f"listener {listener}") if values else self

    def value(self, name: str) -> Any:
        """The value of a setting by its Kafka name."""
        return getattr(self, name.replace(".", "_"))
