// A console tool of Apache Kafka, run by its main method: many tools, one start of Java.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

final class Tool {
    /** What a tool's exit becomes. */
    private static final class Ended extends Error {
        final int code;

        Ended(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    private Tool() {}

    /** One at a time, since they read and write the streams of the process. */
    static synchronized Object run(JsonNode command) throws Exception {
        List<String> arguments = new ArrayList<>();
        command.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        InputStream standardIn = System.in;
        PrintStream standardOut = System.out;
        PrintStream standardError = System.err;
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream error = new ByteArrayOutputStream();
        Exit.setExitProcedure((code, message) -> { throw new Ended(code); });
        Exit.setShutdownHookAdder((name, hook) -> { });
        System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(error, true, StandardCharsets.UTF_8));
        int code = 0;
        try {
            Class<?> tool = Class.forName(command.get("class").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException raised) {
            if (raised.getCause() instanceof Ended) {
                code = ((Ended) raised.getCause()).code;
            } else {
                code = 1;
                raised.getCause().printStackTrace(System.err);
            }
        } finally {
            System.setIn(standardIn);
            System.setOut(standardOut);
            System.setErr(standardError);
        }
        return Map.of(
                "code", code, "out", out.toString(StandardCharsets.UTF_8), "error", error.toString(StandardCharsets.UTF_8));
    }
}
