import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.HeartbeatManagerOptions;
import org.apache.flink.configuration.RestOptions;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamUtils;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Patterns of Flink CEP over events of a file, on a cluster of one slot inside this process.
 *
 * <p>Arguments: a file of int64 numbers, five for each event (kind, time, key, price, volume). Each line of standard
 * input, "pattern window", runs one job; the line that answers it has the number of matches, of the events in them,
 * the sums of those events' times, of the matches' starts and of their ends, and the nanoseconds of CPU time that this
 * process took from the job's submission to its end.
 */
public class FlinkCep {
    public static class Event {
        public long kind;
        public long time;
        public long key;
        public long price;
        public long volume;
    }

    private static Event[] events;
    // What the job's only task found. It runs in this process, and jobs run one after another.
    private static long matches;
    private static long length;
    private static long times;
    private static long starts;
    private static long ends;

    public static void main(String[] arguments) throws Exception {
        events = read(Path.of(arguments[0]));
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        try (MiniCluster cluster = cluster()) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] asked = line.split(" ");
                StreamExecutionEnvironment job = job(asked[0], Duration.ofMillis(Long.parseLong(asked[1])));
                matches = length = times = starts = ends = 0;
                System.gc();
                long before = system.getProcessCpuTime();
                cluster.executeJobBlocking(job.getStreamGraph().getJobGraph());
                long nanoseconds = system.getProcessCpuTime() - before;
                System.out.printf("%d %d %d %d %d %d%n", matches, length, times, starts, ends, nanoseconds);
            }
        }
    }

    /** A cluster of one slot inside this process, started. */
    static MiniCluster cluster() throws Exception {
        Configuration settings = new Configuration();
        // Whoever measures something else may pause this process.
        settings.set(HeartbeatManagerOptions.HEARTBEAT_TIMEOUT, Duration.ofHours(1));
        // Any free port, since there may be another cluster.
        settings.set(RestOptions.BIND_PORT, "0");
        MiniClusterConfiguration one = new MiniClusterConfiguration.Builder()
                .setConfiguration(settings)
                .setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(1)
                .build();
        MiniCluster cluster = new MiniCluster(one);
        try {
            cluster.start();
        } catch (Exception failure) {
            // What has started would keep this process alive.
            cluster.close();
            throw failure;
        }
        return cluster;
    }

    private static Event[] read(Path file) throws Exception {
        LongBuffer numbers = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
        Event[] all = new Event[numbers.remaining() / 5];
        for (int i = 0; i < all.length; i++) {
            Event event = all[i] = new Event();
            event.kind = numbers.get();
            event.time = numbers.get();
            event.key = numbers.get();
            event.price = numbers.get();
            event.volume = numbers.get();
        }
        return all;
    }

    private static StreamExecutionEnvironment job(String pattern, Duration window) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        environment.getConfig().enableObjectReuse();
        DataStream<Event> input = environment
                .fromSequence(0, events.length - 1)
                .map(number -> events[number.intValue()])
                .returns(Event.class)
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Event>forGenerator(context -> new AfterEach())
                        .withTimestampAssigner((event, none) -> event.time));
        if (pattern.equals("sequence")) {
            input = input.filter(event -> event.kind <= 3);
        }
        // With one slot nothing has to be sent to where its key lives.
        KeyedStream<Event, Long> keyed = DataStreamUtils.reinterpretAsKeyedStream(input, event -> event.key);
        CEP.pattern(keyed, pattern(pattern).within(window)).process(new Count()).sinkTo(new DiscardingSink<>());
        return environment;
    }

    private static Pattern<Event, ?> pattern(String name) {
        switch (name) {
            case "sequence":
                return Pattern.<Event>begin("a").where(SimpleCondition.of(e -> e.kind == 1))
                        .followedByAny("b").where(SimpleCondition.of(e -> e.kind == 2))
                        .followedByAny("c").where(SimpleCondition.of(e -> e.kind == 3));
            case "contiguous":
                return rising().oneOrMore().consecutive().next("b").where(SimpleCondition.of(e -> e.volume < 150));
            case "greedy":
                return rising().oneOrMore().greedy().followedByAny("b").where(new Falls());
            case "relaxed":
                return rising().oneOrMore().followedBy("b").where(SimpleCondition.of(e -> e.volume < 150));
            default:
                throw new IllegalArgumentException(name);
        }
    }

    private static Pattern<Event, Event> rising() {
        return Pattern.<Event>begin("a").where(new Rises());
    }

    /** The first price is a multiple of 500, each later one is higher than the one before. */
    private static class Rises extends IterativeCondition<Event> {
        @Override
        public boolean filter(Event event, Context<Event> context) throws Exception {
            Event last = last(context);
            return last == null ? event.price % 500 == 0 : event.price > last.price;
        }
    }

    private static class Falls extends IterativeCondition<Event> {
        @Override
        public boolean filter(Event event, Context<Event> context) throws Exception {
            return event.volume < 150 && event.price < last(context).price;
        }
    }

    private static Event last(IterativeCondition.Context<Event> context) throws Exception {
        Event last = null;
        for (Event one : context.getEventsForPattern("a")) {
            last = one;
        }
        return last;
    }

    /**
     * Times ascend strictly, so nothing at or before an event can come after it. With Flink's periodic watermarks the
     * seconds of one and the same job differed fiftyfold from run to run.
     */
    private static class AfterEach implements WatermarkGenerator<Event> {
        @Override
        public void onEvent(Event event, long time, WatermarkOutput output) {
            output.emitWatermark(new Watermark(time));
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    private static class Count extends PatternProcessFunction<Event, Long> {
        @Override
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<Long> found) {
            long start = Long.MAX_VALUE;
            long end = Long.MIN_VALUE;
            for (List<Event> bound : match.values()) {
                for (Event event : bound) {
                    length++;
                    times += event.time;
                    start = Math.min(start, event.time);
                    end = Math.max(end, event.time);
                }
            }
            matches++;
            starts += start;
            ends += end;
        }
    }
}
