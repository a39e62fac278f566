// Kafka's command-line tools in one JVM, which starts once: reads requests from standard input, each a line with the main
// class, then the number of arguments, the arguments, and the number of bytes of standard input, one a line, then those
// bytes; answers with a line "exit-code bytes-of-output" and the output (standard output and error together).
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.InputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

public class ToolRunner {
  static final class Exited extends RuntimeException {
    final int code;
    Exited(int code) { super("exit " + code, null, false, false); this.code = code; }
  }

  static Integer ended;
  static int saidBefore;
  static ByteArrayOutputStream said;

  public static void main(String[] arguments) throws Exception {
    InputStream requests = System.in;
    PrintStream answers = System.out;
    DataInputStream in = new DataInputStream(requests);
    // A tool that exits inside a try prints the exception that stands for its end: only what came before counts.
    Exit.Procedure end = (code, message) -> {
      if (ended == null) { System.out.flush(); ended = code; saidBefore = said.size(); }
      throw new Exited(code);
    };
    Exit.setExitProcedure(end);
    Exit.setHaltProcedure(end);
    Exit.setShutdownHookAdder((name, hook) -> { });
    for (String main = line(in); main != null; main = line(in)) {
      String[] given = new String[Integer.parseInt(line(in))];
      for (int i = 0; i < given.length; i++) given[i] = line(in);
      byte[] input = in.readNBytes(Integer.parseInt(line(in)));
      said = new ByteArrayOutputStream();
      ended = null;
      PrintStream out = new PrintStream(said, true, "UTF-8");
      System.setOut(out);
      System.setErr(out);
      System.setIn(new ByteArrayInputStream(input));
      int code = 0;
      try {
        Class.forName(main).getMethod("main", String[].class).invoke(null, (Object) given);
      } catch (InvocationTargetException thrown) {
        Throwable cause = thrown.getCause();
        if (cause instanceof Exited) code = ((Exited) cause).code;
        else { cause.printStackTrace(out); code = 99; }
      }
      out.flush();
      byte[] printed = said.toByteArray();
      if (ended != null) { code = ended; printed = Arrays.copyOf(printed, saidBefore); }
      answers.print(code + " " + printed.length + "\n");
      answers.write(printed);
      answers.flush();
    }
  }

  static String line(DataInputStream in) throws Exception {
    ByteArrayOutputStream read = new ByteArrayOutputStream();
    for (int b = in.read(); b != '\n'; b = in.read()) {
      if (b < 0) return null;
      read.write(b);
    }
    return read.toString("UTF-8");
  }
}
