import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.*;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Evaluates expressions as Apache does: each line an expression and properties texts, in base64. */
public class Oracle {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        String line;
        while ((line = in.readLine()) != null) {
            String[] parts = line.split(" ", -1);
            String expression = new String(Base64.getDecoder().decode(parts[0]), StandardCharsets.UTF_8);
            StringBuilder answer = new StringBuilder();
            Expression compiled = null;
            try {
                compiled = SelectorParser.parse(expression);
            } catch (Throwable e) {
                Throwable c = e.getCause();
                answer.append("refused ").append(String.valueOf(c).replace('\n', ' ').replace('\r', ' '));
            }
            if (compiled != null) {
                for (int i = 1; i < parts.length; i++) {
                    Map<String, String> properties = MessageDecoder.string2messageProperties(
                        new String(Base64.getDecoder().decode(parts[i]), StandardCharsets.UTF_8));
                    EvaluationContext context = new EvaluationContext() {
                        public Object get(String name) { return properties.get(name); }
                        public Map<String, Object> keyValues() { return null; }
                    };
                    char c;
                    try {
                        Object value = compiled.evaluate(context);
                        c = value == null ? 'U' : value == Boolean.TRUE ? 'T' : value == Boolean.FALSE ? 'F' : '?';
                    } catch (Throwable e) {
                        c = 'X';
                    }
                    answer.append(c);
                }
            }
            out.println(answer);
            out.flush();
        }
    }
}
