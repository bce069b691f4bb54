"""How a model is spoken to: its end tokens, and the template that makes a prompt of messages.

The template is a program in a file that others wrote, so it runs in jinja2's sandbox, without a way
to the system, and its repetitions are bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from .extra import needed

__all__ = ["Manner"]

MOST = 2**20  # characters that one repetition in a template may make


class Manner(NamedTuple):
    """What a file says about prompts and their ends."""

    file: Path
    ends: frozenset[int]  # tokens after which a text is over
    template: str | None
    specials: dict[str, str]  # bos_token, eos_token: what a template may name

    def prompt(self, messages: Sequence[dict[str, str]]) -> str:
        """The text that the model continues with the assistant's answer.

        Parameters
        ----------
        messages : list of dict
            Each has "role" ("system", "user", "assistant") and "content".

        Raises
        ------
        ValueError
            If the model has no template, or the template refuses the messages.
        """
        if self.template is None:
            raise ValueError(f"{self.file} has no chat template: give the prompt as plain text")
        jinja2 = needed("jinja2")
        try:
            template = _sandbox().from_string(self.template)
            text: str = template.render(
                messages=list(messages), add_generation_prompt=True, **self.specials
            )
        except (jinja2.TemplateError, TypeError, ValueError, OverflowError, RecursionError) as e:
            raise ValueError(f"{self.file}: the chat template could not be used: {e}") from None
        return text


def _sandbox() -> Any:
    """Jinja2's sandbox with what the makers of templates count on."""
    needed("jinja2")
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Bounded(ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            sizes = [len(x) if isinstance(x, (str, list, tuple)) else x for x in (left, right)]
            if operator == "**" or abs(sizes[0] * sizes[1]) > MOST:
                raise ValueError(f"{operator} of so much is not allowed in a template")
            return left * right

    sandbox = Bounded(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    sandbox.globals["raise_exception"] = _refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return sandbox


def _refuse(says: str) -> None:
    raise ValueError(says)
