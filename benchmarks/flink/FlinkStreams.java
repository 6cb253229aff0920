import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.cep.CEP;
import org.apache.flink.cep.functions.PatternProcessFunction;
import org.apache.flink.cep.pattern.conditions.IterativeCondition;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Patterns of Flink CEP over streams of a few events, to see what they answer.
 *
 * <p>Each line of standard input is a stream as "a1 b2=7": types, times and, where it matters, values. The patterns of
 * the class Patterns, which is written by benchmarks/flink_small.py, are run in turn, each over the stream of its
 * line; the line that answers it has its matches, as "(a1 b2)", in the order in which they come.
 */
public class FlinkStreams {
    public static class Event {
        public String type;
        public long time;
        public long value;
    }

    // Found by the job's only task, which runs in this process.
    private static final List<String> FOUND = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        try (MiniCluster cluster = FlinkCep.cluster()) {
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            int number = 0;
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                FOUND.clear();
                cluster.executeJobBlocking(job(number++, line).getStreamGraph().getJobGraph());
                System.out.println(String.join(" ", FOUND));
            }
        }
    }

    private static StreamExecutionEnvironment job(int number, String stream) {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        environment.setParallelism(1);
        DataStream<Event> events = environment
                .fromData(Event.class, events(stream))
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Event>forBoundedOutOfOrderness(Duration.ofHours(1))
                        .withTimestampAssigner((event, none) -> event.time));
        CEP.pattern(events.keyBy(event -> 0), Patterns.of(number)).process(new Tell()).sinkTo(new DiscardingSink<>());
        return environment;
    }

    private static Event[] events(String stream) {
        String[] words = stream.split(" ");
        Event[] events = new Event[words.length];
        for (int i = 0; i < words.length; i++) {
            String[] parts = words[i].substring(1).split("=");
            Event event = events[i] = new Event();
            event.type = words[i].substring(0, 1).toUpperCase();
            event.time = Long.parseLong(parts[0]);
            event.value = parts.length > 1 ? Long.parseLong(parts[1]) : 0;
        }
        return events;
    }

    /** For patterns: the type of an event is one of these letters. */
    static SimpleCondition<Event> is(String letters) {
        return SimpleCondition.of(event -> letters.contains(event.type));
    }

    /** For patterns: an event of that type with the value of the event that the step a has. */
    static IterativeCondition<Event> likeA(String type) {
        return new IterativeCondition<>() {
            @Override
            public boolean filter(Event event, Context<Event> context) throws Exception {
                return event.type.equals(type)
                        && event.value == context.getEventsForPattern("a").iterator().next().value;
            }
        };
    }

    private static class Tell extends PatternProcessFunction<Event, String> {
        @Override
        public void processMatch(Map<String, List<Event>> match, Context context, Collector<String> none) {
            List<String> words = new ArrayList<>();
            for (List<Event> bound : match.values()) {
                for (Event event : bound) {
                    words.add(event.type.toLowerCase() + event.time);
                }
            }
            FOUND.add("(" + String.join(" ", words) + ")");
        }
    }
}
