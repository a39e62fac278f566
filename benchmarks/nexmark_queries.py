"""The queries of Nexmark on suiro.streams, each as plain Python functions, and as expressions where they can say it.

    python benchmarks/nexmark_queries.py QUERY FORM BOOTSTRAP APPLICATION_ID OUTPUT READY_FILE [RECORDS]

FORM is functions or expressions; RECORDS, how many a micro-batch takes at most. The same topologies in Java are in
`kafka_streams/NexmarkPeer.java`, the same questions in SQL in `nexmark_answers.py`. Not here: q6 (the last ten auctions
by seller, which needs the moment at which an auction ends; Flink cannot run the published SQL either), q10 (a sink to
files: `suiro connect`), q12 (windows of the wall clock, with no second answer to compare).
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from suiro.streams import (
    KafkaStreams,
    KStream,
    KTable,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    col,
    left,
    lit,
    right,
    serdes,
    struct,
    when,
)

Value = dict[str, Any]
STRING, JSON = serdes.string, serdes.json
RATE = 0.908
GRACE = "2 days"  # records of one key come from several partitions
DAY_MS = 86_400_000
PRICES = (10_000, 1_000_000)  # the bounds of three ranks
CHANNEL_ID = re.compile("(?:&|^)channel_id=([^&]*)")
KNOWN_CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


class Sources:
    """The inputs, read as a query asks for them."""

    def __init__(self, builder: StreamsBuilder) -> None:
        self._builder = builder

    @property
    def bids(self) -> KStream:
        return self._builder.stream("bid", key=STRING, value=JSON)

    @property
    def auctions(self) -> KTable:
        return self._builder.table("auction", key=STRING, value=JSON)

    @property
    def people(self) -> KTable:
        return self._builder.table("person", key=STRING, value=JSON)

    @property
    def opened(self) -> KStream:
        return self._builder.stream("auction", key=STRING, value=JSON)

    @property
    def joined(self) -> KStream:
        return self._builder.stream("person", key=STRING, value=JSON)

    @property
    def side(self) -> Any:
        return self._builder.global_table("side", key=STRING, value=JSON)


Query = Callable[[Sources], KStream]


def rank(price: int) -> int:
    return 0 if price < PRICES[0] else 1 if price < PRICES[1] else 2


def day(bid: Value) -> int:
    return int(bid["dateTime"]) // DAY_MS


# -- plain functions --------------------------------------------------------------------------------------


def q0(of: Sources) -> KStream:
    """Pass through."""
    return of.bids.map_values(
        lambda bid: {name: bid[name] for name in ("auction", "bidder", "price", "dateTime", "extra")}
    )


def q1(of: Sources) -> KStream:
    """Another currency."""
    return of.bids.map_values(
        lambda bid: {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": RATE * bid["price"],
            "dateTime": bid["dateTime"],
            "extra": bid["extra"],
        }
    )


def q2(of: Sources) -> KStream:
    """Bids on some auctions."""
    some = of.bids.filter(lambda key, bid: bid["auction"] % 123 == 0)
    return some.map_values(lambda bid: {"auction": bid["auction"], "price": bid["price"]})


def q3(of: Sources) -> KStream:
    """Who sells in a category in some states."""
    sold = of.auctions.filter(lambda key, auction: auction["category"] == 10)
    near = of.people.filter(lambda key, person: person["state"] in ("OR", "ID", "CA"))
    found = sold.join(
        near,
        lambda auction, person: {
            "name": person["name"],
            "city": person["city"],
            "state": person["state"],
            "id": auction["id"],
        },
        foreign_key=lambda auction: str(auction["seller"]),
    )
    return found.to_stream()


def on_time(of: Sources) -> KStream:
    """Bids that came while their auction was open, with what q4 and q9 need of it."""

    def met(bid: Value, auction: Value) -> Value | None:
        if not auction["dateTime"] <= bid["dateTime"] <= auction["expires"]:
            return None
        return {
            "price": bid["price"],
            "bidder": bid["bidder"],
            "dateTime": bid["dateTime"],
            "category": auction["category"],
            "seller": auction["seller"],
        }

    return of.bids.join(of.auctions, met).filter(lambda key, found: found is not None)


def q4(of: Sources) -> KStream:
    """The average price of the winning bids of a category."""

    def highest(key: str, bid: Value, best: Value) -> Value:
        return {"price": max(bid["price"], best.get("price", 0)), "category": bid["category"]}

    def add(category: str, price: int, total: list[int]) -> list[int]:
        return [total[0] + price, total[1] + 1]

    def subtract(category: str, price: int, total: list[int]) -> list[int]:
        return [total[0] - price, total[1] - 1]

    final = on_time(of).group_by_key().aggregate(dict, highest, value=JSON)
    by_category = final.group_by(lambda key, best: (str(best["category"]), best["price"]), value=serdes.long)
    totals = by_category.aggregate(lambda: [0, 0], add, subtract, value=JSON)
    # While a category's only auction changes its price, nothing is in it.
    some = totals.to_stream().filter(lambda category, total: total[1] > 0)
    return some.map_values(lambda total: {"average": total[0] / total[1]})


def q5(of: Sources) -> KStream:
    """The auctions with the most bids of the last 10 s, each 2 s."""

    def hottest(start: str, counted: list[int], found: Value) -> Value:
        auction, count = counted
        most = found.get("count", 0)
        if count < most or (count == most and auction in found["auctions"]):
            return found
        return {
            "count": count,
            "auctions": [auction] if count > most else sorted([*found["auctions"], auction]),
        }

    windows = TimeWindows.of_size("10 seconds", advance="2 seconds").grace(0)
    counts = of.bids.group_by_key().windowed_by(windows).count()
    by_window = counts.to_stream().map(lambda window, count: (str(window.start), [int(window.key), count]))
    return by_window.group_by_key(key=STRING, value=JSON).aggregate(dict, hottest, value=JSON).to_stream()


def q7(of: Sources) -> KStream:
    """The highest bids of each 10 s."""

    def highest(key: str, bid: Value, best: Value) -> Value:
        price, most = bid["price"], best.get("price", 0)
        if price < most:
            return best
        row = [bid["auction"], bid["bidder"], bid["dateTime"]]
        return {"price": price, "bids": [row] if price > most else sorted([*best["bids"], row])}

    everybody = of.bids.group_by(lambda key, bid: "all", key=STRING, value=JSON)
    best = everybody.windowed_by(TimeWindows.of_size("10 seconds").grace(GRACE)).aggregate(dict, highest, value=JSON)
    return best.to_stream().map(lambda window, found: (str(window.start), found))


def q8(of: Sources) -> KStream:
    """Who joined and sold in the same 10 s."""
    window = TimeWindows.of_size("10 seconds").grace(GRACE)
    joined = of.joined.group_by_key().windowed_by(window).reduce(lambda old, new: new)
    by_seller = of.opened.group_by(lambda key, auction: str(auction["seller"]), key=STRING, value=JSON)
    sold = by_seller.windowed_by(window).count()
    found = joined.join(sold, lambda person, count: {"id": person["id"], "name": person["name"]})
    return found.to_stream().map(lambda window, one: (f"{window.key}@{window.start}", one))


def q9(of: Sources) -> KStream:
    """The winning bid of each auction."""

    def better(key: str, bid: Value, best: Value) -> Value:
        if best and (-best["price"], best["dateTime"], best["bidder"]) <= (
            -bid["price"],
            bid["dateTime"],
            bid["bidder"],
        ):
            return best
        return bid

    return on_time(of).group_by_key().aggregate(dict, better, value=JSON).to_stream()


def q11(of: Sources) -> KStream:
    """Bids by bidder and session."""
    by_bidder = of.bids.group_by(lambda key, bid: str(bid["bidder"]), key=STRING, value=JSON)
    counts = by_bidder.windowed_by(SessionWindows.of_gap("10 seconds").grace(GRACE)).count()
    return counts.to_stream().map(
        lambda session, count: (
            f"{session.key}@{session.start}-{session.end}",
            None if count is None else {"bids": count},
        )
    )


def q13(of: Sources) -> KStream:
    """Bids with a bounded table."""
    return of.bids.join(
        of.side,
        lambda key, bid: str(bid["auction"] % 10_000),
        lambda bid, side: {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": bid["price"],
            "dateTime": bid["dateTime"],
            "value": side["value"],
        },
    )


def q14(of: Sources) -> KStream:
    """A calculation, a choice and a function of one's own."""

    def calculated(bid: Value) -> Value:
        hour = bid["dateTime"] // 3_600_000 % 24
        return {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": RATE * bid["price"],
            "bidTimeType": "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime",
            "dateTime": bid["dateTime"],
            "extra": bid["extra"],
            "c_counts": bid["extra"].count("c"),
        }

    some = of.bids.filter(lambda key, bid: 1_000_000 < RATE * bid["price"] < 50_000_000)
    return some.map_values(calculated)


def report(of: Sources, group: Callable[[Value], str]) -> KStream:
    """For q15 and q16: bids, bidders and auctions of a group, in all and by rank of price."""

    def ranks(key: str, bid: Value, found: list[int]) -> list[int]:
        place = rank(bid["price"])
        return [found[0] + 1, *(count + (number == place) for number, count in enumerate(found[1:]))]

    def seen(key: str, bid: Value, found: list[int]) -> list[int]:
        place = rank(bid["price"])
        return [1, *(int(flag or number == place) for number, flag in enumerate(found[1:]))]

    def add(key: str, flags: list[int], total: list[int]) -> list[int]:
        return [one + two for one, two in zip(total, flags, strict=True)]

    def subtract(key: str, flags: list[int], total: list[int]) -> list[int]:
        return [one - two for one, two in zip(total, flags, strict=True)]

    def distinct(name: str) -> KTable:
        by_one = of_bids.group_by(lambda key, bid: f"{group(bid)}|{bid[name]}", key=STRING, value=JSON)
        flags = by_one.aggregate(lambda: [0] * 4, seen, value=JSON)
        by_group = flags.group_by(lambda key, found: (key.rpartition("|")[0], found), key=STRING, value=JSON)
        return by_group.aggregate(lambda: [0] * 4, add, subtract, value=JSON)

    of_bids = of.bids
    bids = of_bids.group_by(lambda key, bid: group(bid), key=STRING, value=JSON).aggregate(
        lambda: [0] * 4, ranks, value=JSON
    )
    both = bids.join(distinct("bidder"), lambda counts, bidders: {"bids": counts, "bidders": bidders})
    return both.join(distinct("auction"), lambda found, auctions: found | {"auctions": auctions}).to_stream()


def q15(of: Sources) -> KStream:
    """Bids, bidders and auctions of a day."""
    return report(of, lambda bid: str(day(bid)))


def q16(of: Sources) -> KStream:
    """The same of each channel."""
    return report(of, lambda bid: f"{bid['channel']}|{day(bid)}")


def q17(of: Sources) -> KStream:
    """Figures of each auction and day."""

    def add(key: str, bid: Value, found: list[int]) -> list[int]:
        price = bid["price"]
        count, low, middle, high, least, most, total = found
        place = rank(price)
        return [
            count + 1,
            low + (place == 0),
            middle + (place == 1),
            high + (place == 2),
            price if count == 0 else min(least, price),
            max(most, price),
            total + price,
        ]

    by_day = of.bids.group_by(lambda key, bid: f"{bid['auction']}|{day(bid)}", key=STRING, value=JSON)
    return (
        by_day.aggregate(lambda: [0] * 7, add, value=JSON)
        .to_stream()
        .map_values(lambda found: {"figures": found, "average": found[6] / found[0]})
    )


def q18(of: Sources) -> KStream:
    """The last bid of each bidder on each auction."""
    by_both = of.bids.group_by(lambda key, bid: f"{bid['bidder']}|{bid['auction']}", key=STRING, value=JSON)
    return by_both.reduce(lambda old, new: new).to_stream()


def q19(of: Sources) -> KStream:
    """The ten highest prices of each auction."""

    def add(key: str, bid: Value, best: list[int]) -> list[int]:
        price = bid["price"]
        if len(best) == 10 and price <= best[-1]:
            return best
        return sorted([*best, price], reverse=True)[:10]

    return of.bids.group_by_key().aggregate(list, add, value=JSON).to_stream()


def q20(of: Sources) -> KStream:
    """Bids with their auction, of one category."""
    found = of.bids.join(
        of.auctions,
        lambda bid, auction: bid | {name: auction[name] for name in ("itemName", "seller", "category", "expires")},
    )
    return found.filter(lambda key, both: both["category"] == 10)


def q21(of: Sources) -> KStream:
    """The number of a bid's channel."""

    def with_channel(bid: Value) -> Value | None:
        number = KNOWN_CHANNELS.get(bid["channel"].lower())
        if number is None:
            found = CHANNEL_ID.search(bid["url"])
            if found is None:
                return None
            number = found[1]
        return {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": bid["price"],
            "channel": bid["channel"],
            "channel_id": number,
        }

    return of.bids.map_values(with_channel).filter(lambda key, found: found is not None)


def q22(of: Sources) -> KStream:
    """The folders of a bid's URL."""

    def split(bid: Value) -> Value:
        parts = bid["url"].split("/")
        return {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": bid["price"],
            "channel": bid["channel"],
            "dir1": parts[3],
            "dir2": parts[4],
            "dir3": parts[5],
        }

    return of.bids.map_values(split)


FUNCTIONS: dict[str, Query] = {
    one.__name__: one
    for one in (
        *(q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q13, q14),
        *(q15, q16, q17, q18, q19, q20, q21, q22),
    )
}


# -- expressions ------------------------------------------------------------------------------------------


def e0(of: Sources) -> KStream:
    return of.bids.map_values(
        struct(**{name: col(name) for name in ("auction", "bidder", "price", "dateTime", "extra")})
    )


def e1(of: Sources) -> KStream:
    names = ("auction", "bidder", "dateTime", "extra")
    return of.bids.map_values(struct(**{name: col(name) for name in names}, price=lit(RATE) * col("price")))


def e2(of: Sources) -> KStream:
    some = of.bids.filter(col("auction") % 123 == 0)
    return some.map_values(struct(auction=col("auction"), price=col("price")))


def e3(of: Sources) -> KStream:
    sold = of.auctions.filter(col("category") == 10)
    near = of.people.filter(col("state").is_in(["OR", "ID", "CA"]))
    joiner = struct(name=right("name"), city=right("city"), state=right("state"), id=left("id"))
    return sold.join(near, joiner, foreign_key=col("seller").cast("string")).to_stream()


def e8(of: Sources) -> KStream:
    window = TimeWindows.of_size("10 seconds").grace(GRACE)
    joined = of.joined.group_by_key().windowed_by(window).reduce(right())
    sold = of.opened.group_by(col("seller").cast("string"), key=STRING, value=JSON).windowed_by(window).count()
    found = joined.join(sold, struct(id=left("id"), name=left("name")))
    return found.to_stream().map(lambda window, one: (f"{window.key}@{window.start}", one))


def e11(of: Sources) -> KStream:
    by_bidder = of.bids.group_by(col("bidder").cast("string"), key=STRING, value=JSON)
    counts = by_bidder.windowed_by(SessionWindows.of_gap("10 seconds").grace(GRACE)).count()
    return counts.to_stream().map(
        lambda session, count: (
            f"{session.key}@{session.start}-{session.end}",
            None if count is None else {"bids": count},
        )
    )


def e13(of: Sources) -> KStream:
    names = ("auction", "bidder", "price", "dateTime")
    joiner = struct(**{name: left(name) for name in names}, value=right("value"))
    return of.bids.join(of.side, (col("auction") % 10_000).cast("string"), joiner)


def e14(of: Sources) -> KStream:
    price, hour = lit(RATE) * col("price"), col("dateTime") // 3_600_000 % 24
    names = ("auction", "bidder", "dateTime", "extra")
    kind = when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    letters = col("extra").length() - col("extra").replace("c", "").length()
    some = of.bids.filter((price > 1_000_000) & (price < 50_000_000))
    return some.map_values(
        struct(**{name: col(name) for name in names}, price=price, bidTimeType=kind, c_counts=letters)
    )


def e18(of: Sources) -> KStream:
    both = col("bidder").cast("string").concat("|", col("auction").cast("string"))
    return of.bids.group_by(both, key=STRING, value=JSON).reduce(right()).to_stream()


def e20(of: Sources) -> KStream:
    ours = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")
    theirs = ("itemName", "seller", "category", "expires")
    joiner = struct(**{name: left(name) for name in ours}, **{name: right(name) for name in theirs})
    return of.bids.join(of.auctions, joiner).filter(col("category") == 10)


EXPRESSIONS: dict[str, Query] = {f"q{one.__name__[1:]}": one for one in (e0, e1, e2, e3, e8, e11, e13, e14, e18, e20)}
"""Those that expressions can say. Elsewhere a dictionary of counts, a list, a split or a pattern needs a function."""
FORMS = {"functions": FUNCTIONS, "expressions": EXPRESSIONS}


def build(builder: StreamsBuilder, query: str, form: str, output: str) -> None:
    FORMS[form][query](Sources(builder)).to(output, key=STRING, value=JSON)


def main() -> int:
    if len(sys.argv) not in (7, 8):
        print(__doc__, file=sys.stderr)
        return 2
    query, form, bootstrap, application, output, ready = sys.argv[1:7]
    limit = {"max_offsets_per_trigger": int(sys.argv[7])} if len(sys.argv) == 8 else {}
    builder = StreamsBuilder()
    build(builder, query, form, output)
    streams = KafkaStreams(builder.build(), application_id=application, bootstrap_servers=bootstrap, **limit)
    streams.start()
    Path(ready).write_text(str(int(time.time() * 1000)))
    streams.await_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
