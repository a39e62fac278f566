"""Parts of limited size: in order, as few as that allows, and none empty."""

from suiro.foundation.parts import in_parts


def test_parts_have_the_items_in_order_and_no_part_is_larger_than_allowed() -> None:
    assert list(in_parts([3, 3, 3, 1, 6, 1], int, max_size=6)) == [[3, 3], [3, 1], [6], [1]]


def test_an_item_that_is_too_large_is_alone() -> None:
    assert list(in_parts([1, 9, 1], int, max_size=6)) == [[1], [9], [1]]


def test_the_number_of_items_of_a_part_may_be_limited() -> None:
    assert list(in_parts([0, 0, 0, 5, 5], int, max_size=6, max_items=2)) == [[0, 0], [0, 5], [5]]


def test_of_nothing_there_are_no_parts() -> None:
    assert list(in_parts([], int, max_size=6)) == []
