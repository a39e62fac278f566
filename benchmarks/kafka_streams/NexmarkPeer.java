// The queries of Nexmark on Kafka Streams with Jackson: the same topologies as benchmarks/nexmark_queries.py.
// Usage: NexmarkPeer QUERY BOOTSTRAP APPLICATION_ID OUTPUT READY_FILE STATE_FOLDER THREADS

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.TimeWindows;

public final class NexmarkPeer {
    @JsonIgnoreProperties(ignoreUnknown = true)
    record Person(long id, String name, String emailAddress, String creditCard, String city, String state,
            long dateTime, String extra) {}

    @JsonIgnoreProperties(ignoreUnknown = true)
    record Auction(long id, String itemName, String description, long initialBid, long reserve, long dateTime,
            long expires, long seller, int category, String extra) {}

    record Bid(long auction, long bidder, long price, String channel, String url, long dateTime, String extra) {}

    record Side(long key, String value) {}

    record Passed(long auction, long bidder, long price, long dateTime, String extra) {}

    record Converted(long auction, long bidder, double price, long dateTime, String extra) {}

    record Price(long auction, long price) {}

    record Seller(String name, String city, String state, long id) {}

    record OnTime(long price, long bidder, long dateTime, int category, long seller) {}

    record Final(long price, int category) {}

    record Average(double average) {}

    record Hottest(long count, List<Long> auctions) {}

    record Highest(long price, List<List<Long>> bids) {}

    record Joining(long id, String name) {}

    record Bids(long bids) {}

    record WithSide(long auction, long bidder, long price, long dateTime, String value) {}

    record Calculated(long auction, long bidder, double price, String bidTimeType, long dateTime, String extra,
            long c_counts) {}

    record Report(long[] bids, long[] bidders, long[] auctions) {}

    record Figures(long[] figures, double average) {}

    record Expanded(long auction, long bidder, long price, String channel, String url, long dateTime, String extra,
            String itemName, long seller, int category, long expires) {}

    record WithChannel(long auction, long bidder, long price, String channel, String channel_id) {}

    record Folders(long auction, long bidder, long price, String channel, String dir1, String dir2, String dir3) {}

    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Serde<String> STRING = Serdes.String();
    private static final Serde<Bid> BID = json(Bid.class);
    private static final Serde<long[]> NUMBERS = json(long[].class);
    private static final double RATE = 0.908;
    private static final Duration GRACE = Duration.ofDays(2);
    private static final Duration TEN_SECONDS = Duration.ofSeconds(10);
    private static final long DAY_MS = 86_400_000;
    private static final Pattern CHANNEL_ID = Pattern.compile("(?:&|^)channel_id=([^&]*)");
    private static final Map<String, String> KNOWN_CHANNELS =
            Map.of("apple", "0", "google", "1", "facebook", "2", "baidu", "3");

    private final StreamsBuilder builder = new StreamsBuilder();

    /** JSON by Jackson; null stays null. */
    static <T> Serde<T> json(Class<T> type) {
        var reader = MAPPER.readerFor(type);
        var writer = MAPPER.writerFor(type);
        return Serdes.serdeFrom(
                (topic, value) -> {
                    try {
                        return value == null ? null : writer.writeValueAsBytes(value);
                    } catch (JsonProcessingException error) {
                        throw new UncheckedIOException(error);
                    }
                },
                (topic, bytes) -> {
                    try {
                        return bytes == null ? null : reader.readValue(bytes);
                    } catch (IOException error) {
                        throw new UncheckedIOException(error);
                    }
                });
    }

    private static <V> Materialized<String, V, org.apache.kafka.streams.state.KeyValueStore<
            org.apache.kafka.common.utils.Bytes, byte[]>> rows(Serde<V> serde) {
        return Materialized.with(STRING, serde);
    }

    private static <V> Materialized<String, V, org.apache.kafka.streams.state.WindowStore<
            org.apache.kafka.common.utils.Bytes, byte[]>> windows(Serde<V> serde) {
        return Materialized.with(STRING, serde);
    }

    /**
     * Of tables that are joined with each other. With record caches that become full, some final results have an old
     * row of one of the tables (up to 62, other ones in each run).
     */
    private static Materialized<String, long[], org.apache.kafka.streams.state.KeyValueStore<
            org.apache.kafka.common.utils.Bytes, byte[]>> joinedRows() {
        return rows(NUMBERS).withCachingDisabled();
    }

    private KStream<String, Bid> bids() {
        return builder.stream("bid", Consumed.with(STRING, BID));
    }

    private KTable<String, Auction> auctions() {
        return builder.table("auction", Consumed.with(STRING, json(Auction.class)));
    }

    private static int rank(long price) {
        return price < 10_000 ? 0 : price < 1_000_000 ? 1 : 2;
    }

    private static <V> void to(KStream<String, V> stream, Class<V> type, String output) {
        stream.to(output, Produced.with(STRING, json(type)));
    }

    private KStream<String, OnTime> onTime() {
        return bids().join(
                        auctions(),
                        (bid, auction) -> bid.dateTime() < auction.dateTime() || bid.dateTime() > auction.expires()
                                ? null
                                : new OnTime(bid.price(), bid.bidder(), bid.dateTime(), auction.category(),
                                        auction.seller()),
                        Joined.with(STRING, BID, json(Auction.class)))
                .filter((key, found) -> found != null);
    }

    private KTable<String, long[]> distinct(
            KStream<String, Bid> bids, Function<Bid, String> group, Function<Bid, Long> name) {
        var flags = bids.groupBy((key, bid) -> group.apply(bid) + "|" + name.apply(bid), Grouped.with(STRING, BID))
                .aggregate(
                        () -> new long[4],
                        (key, bid, found) -> {
                            var seen = found.clone();
                            seen[0] = 1;
                            seen[1 + rank(bid.price())] = 1;
                            return seen;
                        },
                        rows(NUMBERS));
        return flags.groupBy(
                        (key, found) -> KeyValue.pair(key.substring(0, key.lastIndexOf('|')), found),
                        Grouped.with(STRING, NUMBERS))
                .aggregate(
                        () -> new long[4],
                        (key, one, total) -> sum(total, one, 1),
                        (key, one, total) -> sum(total, one, -1),
                        joinedRows());
    }

    private static long[] sum(long[] total, long[] one, int sign) {
        var made = total.clone();
        for (int place = 0; place < made.length; place++) {
            made[place] += sign * one[place];
        }
        return made;
    }

    private void report(Function<Bid, String> group, String output) {
        var all = bids();
        var counts = all.groupBy((key, bid) -> group.apply(bid), Grouped.with(STRING, BID))
                .aggregate(
                        () -> new long[4],
                        (key, bid, found) -> {
                            var made = found.clone();
                            made[0]++;
                            made[1 + rank(bid.price())]++;
                            return made;
                        },
                        joinedRows());
        var found = counts.join(
                        distinct(all, group, Bid::bidder),
                        (bids, bidders) -> new Report(bids, bidders, null),
                        rows(json(Report.class)))
                .join(
                        distinct(all, group, Bid::auction),
                        (report, auctions) -> new Report(report.bids(), report.bidders(), auctions),
                        rows(json(Report.class)));
        to(found.toStream(), Report.class, output);
    }

    private void build(String query, String output) {
        var minute = TimeWindows.ofSizeAndGrace(TEN_SECONDS, GRACE);
        switch (query) {
            case "q0" -> to(bids().mapValues(bid -> new Passed(
                    bid.auction(), bid.bidder(), bid.price(), bid.dateTime(), bid.extra())), Passed.class, output);
            case "q1" -> to(bids().mapValues(bid -> new Converted(
                    bid.auction(), bid.bidder(), RATE * bid.price(), bid.dateTime(), bid.extra())),
                    Converted.class, output);
            case "q2" -> to(bids().filter((key, bid) -> bid.auction() % 123 == 0)
                    .mapValues(bid -> new Price(bid.auction(), bid.price())), Price.class, output);
            case "q3" -> {
                var near = builder.table("person", Consumed.with(STRING, json(Person.class)))
                        .filter((key, person) -> List.of("OR", "ID", "CA").contains(person.state()));
                to(auctions().filter((key, auction) -> auction.category() == 10)
                        .join(near, auction -> Long.toString(auction.seller()),
                                (auction, person) -> new Seller(
                                        person.name(), person.city(), person.state(), auction.id()),
                                rows(json(Seller.class)))
                        .toStream(), Seller.class, output);
            }
            case "q4" -> {
                var last = onTime().groupByKey(Grouped.with(STRING, json(OnTime.class)))
                        .aggregate(() -> new Final(0, 0),
                                (key, bid, best) -> new Final(Math.max(bid.price(), best.price()), bid.category()),
                                rows(json(Final.class)));
                var totals = last.groupBy(
                                (key, best) -> KeyValue.pair(Integer.toString(best.category()), best.price()),
                                Grouped.with(STRING, Serdes.Long()))
                        .aggregate(() -> new long[2],
                                (key, price, total) -> new long[] {total[0] + price, total[1] + 1},
                                (key, price, total) -> new long[] {total[0] - price, total[1] - 1},
                                rows(NUMBERS));
                to(totals.toStream().filter((key, total) -> total[1] > 0)
                        .mapValues(total -> new Average((double) total[0] / total[1])), Average.class, output);
            }
            case "q5" -> {
                var hops = TimeWindows.ofSizeWithNoGrace(TEN_SECONDS).advanceBy(Duration.ofSeconds(2));
                var hottest = bids().groupByKey(Grouped.with(STRING, BID))
                        .windowedBy(hops)
                        .count()
                        .toStream()
                        .map((window, count) -> KeyValue.pair(
                                Long.toString(window.window().start()),
                                new long[] {Long.parseLong(window.key()), count}))
                        .groupByKey(Grouped.with(STRING, NUMBERS))
                        .aggregate(() -> new Hottest(0, List.of()), (key, one, found) -> {
                            if (one[1] < found.count() || one[1] == found.count() && found.auctions().contains(one[0])) {
                                return found;
                            }
                            var auctions = new ArrayList<Long>();
                            if (one[1] == found.count()) {
                                auctions.addAll(found.auctions());
                            }
                            auctions.add(one[0]);
                            auctions.sort(Comparator.naturalOrder());
                            return new Hottest(one[1], auctions);
                        }, rows(json(Hottest.class)));
                to(hottest.toStream(), Hottest.class, output);
            }
            case "q7" -> {
                Comparator<List<Long>> order = Comparator.<List<Long>>comparingLong(bid -> bid.get(0))
                        .thenComparingLong(bid -> bid.get(1))
                        .thenComparingLong(bid -> bid.get(2));
                var best = bids().groupBy((key, bid) -> "all", Grouped.with(STRING, BID))
                        .windowedBy(minute)
                        .aggregate(() -> new Highest(0, List.of()), (key, bid, found) -> {
                            if (bid.price() < found.price()) {
                                return found;
                            }
                            var made = new ArrayList<List<Long>>();
                            if (bid.price() == found.price()) {
                                made.addAll(found.bids());
                            }
                            made.add(List.of(bid.auction(), bid.bidder(), bid.dateTime()));
                            made.sort(order);
                            return new Highest(bid.price(), made);
                        }, windows(json(Highest.class)));
                to(best.toStream().map((window, found) -> KeyValue.pair(
                        Long.toString(window.window().start()), found)), Highest.class, output);
            }
            case "q8" -> {
                var joined = builder.stream("person", Consumed.with(STRING, json(Person.class)))
                        .groupByKey(Grouped.with(STRING, json(Person.class)))
                        .windowedBy(minute)
                        .reduce((old, person) -> person, windows(json(Person.class)));
                var sold = builder.stream("auction", Consumed.with(STRING, json(Auction.class)))
                        .groupBy((key, auction) -> Long.toString(auction.seller()),
                                Grouped.with(STRING, json(Auction.class)))
                        .windowedBy(minute)
                        .count();
                to(joined.join(sold, (person, count) -> new Joining(person.id(), person.name()))
                        .toStream((window, one) -> window.key() + "@" + window.window().start()),
                        Joining.class, output);
            }
            case "q9" -> {
                var order = Comparator.<OnTime>comparingLong(bid -> -bid.price())
                        .thenComparingLong(OnTime::dateTime)
                        .thenComparingLong(OnTime::bidder);
                to(onTime().groupByKey(Grouped.with(STRING, json(OnTime.class)))
                        .reduce((best, bid) -> order.compare(best, bid) <= 0 ? best : bid, rows(json(OnTime.class)))
                        .toStream(), OnTime.class, output);
            }
            case "q11" -> to(bids().groupBy((key, bid) -> Long.toString(bid.bidder()), Grouped.with(STRING, BID))
                    .windowedBy(SessionWindows.ofInactivityGapAndGrace(TEN_SECONDS, GRACE))
                    .count()
                    .toStream((session, count) ->
                            session.key() + "@" + session.window().start() + "-" + session.window().end())
                    .mapValues(count -> count == null ? null : new Bids(count)), Bids.class, output);
            case "q13" -> to(bids().join(
                            builder.globalTable("side", Consumed.with(STRING, json(Side.class))),
                            (key, bid) -> Long.toString(bid.auction() % 10_000),
                            (bid, side) -> new WithSide(
                                    bid.auction(), bid.bidder(), bid.price(), bid.dateTime(), side.value())),
                    WithSide.class, output);
            case "q14" -> to(bids().filter((key, bid) ->
                            RATE * bid.price() > 1_000_000 && RATE * bid.price() < 50_000_000)
                    .mapValues(bid -> {
                        var hour = bid.dateTime() / 3_600_000 % 24;
                        return new Calculated(bid.auction(), bid.bidder(), RATE * bid.price(),
                                hour >= 8 && hour <= 18 ? "dayTime"
                                        : hour <= 6 || hour >= 20 ? "nightTime" : "otherTime",
                                bid.dateTime(), bid.extra(), bid.extra().chars().filter(one -> one == 'c').count());
                    }), Calculated.class, output);
            case "q15" -> report(bid -> Long.toString(bid.dateTime() / DAY_MS), output);
            case "q16" -> report(bid -> bid.channel() + "|" + bid.dateTime() / DAY_MS, output);
            case "q17" -> to(bids().groupBy(
                            (key, bid) -> bid.auction() + "|" + bid.dateTime() / DAY_MS, Grouped.with(STRING, BID))
                    .aggregate(() -> new long[7], (key, bid, found) -> {
                        var made = found.clone();
                        made[4] = made[0] == 0 ? bid.price() : Math.min(made[4], bid.price());
                        made[0]++;
                        made[1 + rank(bid.price())]++;
                        made[5] = Math.max(made[5], bid.price());
                        made[6] += bid.price();
                        return made;
                    }, rows(NUMBERS))
                    .toStream()
                    .mapValues(found -> new Figures(found, (double) found[6] / found[0])), Figures.class, output);
            case "q18" -> to(bids().groupBy((key, bid) -> bid.bidder() + "|" + bid.auction(), Grouped.with(STRING, BID))
                    .reduce((old, bid) -> bid, rows(BID))
                    .toStream(), Bid.class, output);
            case "q19" -> to(bids().groupByKey(Grouped.with(STRING, BID))
                    .aggregate(() -> new long[0], (key, bid, best) -> {
                        if (best.length == 10 && bid.price() <= best[9]) {
                            return best;
                        }
                        var made = Arrays.copyOf(best, best.length + 1);
                        int place = best.length;
                        while (place > 0 && made[place - 1] < bid.price()) {
                            made[place] = made[place - 1];
                            place--;
                        }
                        made[place] = bid.price();
                        return made.length > 10 ? Arrays.copyOf(made, 10) : made;
                    }, rows(NUMBERS))
                    .toStream(), long[].class, output);
            case "q20" -> to(bids().join(
                            auctions(),
                            (bid, auction) -> new Expanded(bid.auction(), bid.bidder(), bid.price(), bid.channel(),
                                    bid.url(), bid.dateTime(), bid.extra(), auction.itemName(), auction.seller(),
                                    auction.category(), auction.expires()),
                            Joined.with(STRING, BID, json(Auction.class)))
                    .filter((key, both) -> both.category() == 10), Expanded.class, output);
            case "q21" -> to(bids().mapValues(bid -> {
                        var number = KNOWN_CHANNELS.get(bid.channel().toLowerCase(Locale.ROOT));
                        if (number == null) {
                            var found = CHANNEL_ID.matcher(bid.url());
                            if (!found.find()) {
                                return null;
                            }
                            number = found.group(1);
                        }
                        return new WithChannel(bid.auction(), bid.bidder(), bid.price(), bid.channel(), number);
                    })
                    .filter((key, found) -> found != null), WithChannel.class, output);
            case "q22" -> to(bids().mapValues(bid -> {
                        var parts = bid.url().split("/");
                        return new Folders(bid.auction(), bid.bidder(), bid.price(), bid.channel(), parts[3], parts[4],
                                parts[5]);
                    }), Folders.class, output);
            default -> throw new IllegalArgumentException("no query is called " + query);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        if (arguments.length != 7) {
            System.err.println("seven arguments, see the first lines of NexmarkPeer.java");
            System.exit(2);
        }
        var peer = new NexmarkPeer();
        peer.build(arguments[0], arguments[3]);
        KafkaStreamsPeer.run(
                peer.builder.build(), arguments[1], arguments[2], arguments[4], arguments[5], arguments[6]);
    }

    private NexmarkPeer() {}
}
