"""The rules of `ictp2p/concurrency/logs.py`, broken."""

from typing import Final

from tests.mutations.mutation import Mutation

MUTATIONS: Final = (
    Mutation(
        "obeyed-by-the-terminal",
        "What others say cannot write lines of its own in a log, nor move the terminal that shows it.",
        "printable(text % args if args else text)",
        "(text % args if args else text)",
        ("concurrency/test_logs.py::test_a_warning_is_one_line_whatever_others_said_that_stands_in_it",),
    ),
    Mutation(
        "log-ended-in-silence",
        "A handler of the program that asks the interpreter to exit does not end the log.",
        "    with contextlib.suppress(BaseException):",
        "    with contextlib.suppress(Exception):",
        ("concurrency/test_logs.py::test_a_handler_that_raises_raises_into_nobody_and_is_told_of_what_comes_next",),
    ),
    Mutation(
        "log-handler-heard-in-protocols",
        "What a log handler of the program raises ends in the thread that logs.",
        "    with contextlib.suppress(BaseException):",
        "    with contextlib.nullcontext():",
        ("concurrency/test_logs.py::test_where_no_thread_can_be_started_it_is_written_at_once",),
    ),
    Mutation(
        "log-without-an-end",
        "A log handler that blocks costs so much memory and no more.",
        "if self._waiting.qsize() >= _ROOM:",
        "if False:",
        ("concurrency/test_logs.py::test_a_handler_that_blocks_holds_up_nobody_and_costs_so_much_memory",),
    ),
)
