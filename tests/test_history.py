"""What a model is given of what was said, whatever happened in between."""

import time

import pytest
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse

from agentbridge.history import to_model_messages
from agentbridge.said import HistoryItem
from agentbridge.tokens import count_tokens, within_budget


def said(*turns: tuple[str, str]) -> list[HistoryItem]:
    return [HistoryItem(role, content) for role, content in turns]


def shape(messages: list[ModelMessage]) -> list[tuple[str, list[str]]]:
    kinds = {ModelRequest: "request", ModelResponse: "response"}
    return [(kinds[type(m)], [f"{p.part_kind}: {p.content}" for p in m.parts]) for m in messages]  # type: ignore[union-attr]


def test_questions_and_answers_alternate() -> None:
    messages = to_model_messages(said(("user", "a"), ("assistant", "b"), ("user", "c")))
    assert shape(messages) == [
        ("request", ["user-prompt: a"]),
        ("response", ["text: b"]),
        ("request", ["user-prompt: c"]),
    ]


def test_a_question_that_was_never_answered_goes_with_the_next() -> None:
    assert shape(to_model_messages(said(("user", "a"), ("user", "b")))) == [
        ("request", ["user-prompt: a", "user-prompt: b"])
    ]


def test_an_answer_that_broke_off_before_its_first_word_is_left_out() -> None:
    messages = to_model_messages(said(("user", "a"), ("assistant", " "), ("user", "b")))
    assert shape(messages) == [("request", ["user-prompt: a", "user-prompt: b"])]


def test_two_answers_in_a_row_are_one_response() -> None:
    messages = to_model_messages(said(("user", "a"), ("assistant", "b"), ("assistant", "c")))
    assert shape(messages)[1] == ("response", ["text: b", "text: c"])


def test_a_system_message_is_a_part_of_the_request() -> None:
    messages = to_model_messages(said(("system", "wees kort"), ("user", "a")))
    assert shape(messages) == [("request", ["system-prompt: wees kort", "user-prompt: a"])]


def test_nothing_said_is_nothing_given() -> None:
    assert to_model_messages([]) == []


class TestBudget:
    long = "veilig " * 100

    def test_what_fits_stays(self) -> None:
        items = said(("user", "a"), ("assistant", "b"))
        kept, tokens = within_budget(items, question="c", budget=100)
        assert kept == items
        assert tokens == sum(map(count_tokens, "abc"))

    def test_whole_turns_go_and_the_oldest_first(self) -> None:
        items = said(("user", self.long), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
        kept, tokens = within_budget(items, question="e", budget=60)
        assert [item.content for item in kept] == ["c", "d"]
        assert tokens <= 60

    def test_a_question_over_the_budget_leaves_no_context(self) -> None:
        kept, tokens = within_budget(said(("user", "a")), question=self.long, budget=50)
        assert kept == []
        assert tokens > 50

    @pytest.mark.parametrize("sign", ["汉", "=", "a", " "])
    def test_what_stands_unbroken_takes_no_longer_than_its_length_says(self, sign: str) -> None:
        def seconds(length: int) -> float:
            begin = time.process_time()
            for _ in range(10):
                count_tokens(sign * length)
            return time.process_time() - begin

        count_tokens("")
        assert seconds(4000) < 4 * 4 * seconds(1000)

    def test_pieces_of_what_stands_unbroken_are_all_counted(self) -> None:
        url = "https://example.org/" + "richtlijn/" * 100
        assert count_tokens(url * 2) == pytest.approx(2 * count_tokens(url), rel=0.1)

    def test_a_text_beyond_any_budget_is_judged_by_its_beginning(self) -> None:
        assert count_tokens(self.long * 1000) == pytest.approx(1000 * count_tokens(self.long), rel=0.05)

    def test_words_that_mean_something_to_a_model_are_counted_as_text(self) -> None:
        assert count_tokens("<|endoftext|>") > count_tokens("a")
