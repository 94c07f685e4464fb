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

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();
    private final ByteArrayOutputStream error = new ByteArrayOutputStream();
    private final List<Runnable> hooks = new ArrayList<>();
    private int code = -1;
    private String said = "";

    private Tool() {}

    /** The first exit counts: some tools catch what it throws and then end a second time. */
    private void exit(int status) {
        if (code < 0) {
            code = status;
            said = out.toString(StandardCharsets.UTF_8);
        }
        throw new Ended(status);
    }

    private void invoke(JsonNode command) throws Exception {
        List<String> arguments = new ArrayList<>();
        command.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        try {
            Class<?> tool = Class.forName(command.get("class").asText());
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
            if (code < 0) {
                exit(0);
            }
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Ended)) {
                code = 1;
                raised.getCause().printStackTrace(System.err);
            }
        } catch (Ended end) {
            // as it should
        }
        hooks.forEach(Runnable::run);
    }

    /** One at a time, since they read and write the streams of the process. */
    static synchronized Object run(JsonNode command) throws Exception {
        InputStream standardIn = System.in;
        PrintStream standardOut = System.out;
        PrintStream standardError = System.err;
        Tool tool = new Tool();
        System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(tool.out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(tool.error, true, StandardCharsets.UTF_8));
        try {
            tool.invoke(command);
        } finally {
            System.setIn(standardIn);
            System.setOut(standardOut);
            System.setErr(standardError);
        }
        return Map.of("code", tool.code, "out", tool.said, "error", tool.error.toString(StandardCharsets.UTF_8));
    }
}
