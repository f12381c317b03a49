from twinbus.pipeline.sink.message_ids import TaskPlace, message_id, place_in_job, place_in_query

PLACE = TaskPlace("0c9bde58-1f70-4a0c-b2b2-2cb1bb1f0a53/123456", 199)


def test_the_same_row_at_the_same_place_has_the_same_id() -> None:
    assert message_id(PLACE, 7, b"x", ("a", 1)) == message_id(PLACE, 7, b"x", ("a", 1))


def test_another_place_or_another_content_is_another_id() -> None:
    ids = [
        message_id(PLACE, 7, b"x", ("a",)),
        message_id(PLACE, 8, b"x", ("a",)),
        message_id(PLACE._replace(input_partition=1), 7, b"x", ("a",)),
        message_id(PLACE._replace(work="other"), 7, b"x", ("a",)),
        message_id(PLACE, 7, b"y", ("a",)),
        message_id(PLACE, 7, b"x", ("b",)),
        message_id(PLACE, 7, None, ()),
    ]
    assert len(set(ids)) == len(ids)


def test_an_id_fits_into_the_128_characters_of_the_service() -> None:
    assert len(message_id(PLACE, 10**9, "text", ())) < 128


def test_outside_of_spark_the_job_names_the_work() -> None:
    assert place_in_job("job") == place_in_query("job") == TaskPlace("job", 0)
