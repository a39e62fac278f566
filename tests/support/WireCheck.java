// Reads lines "api version hex" of response frames (without their length) and has Kafka's own generated classes decode
// them: prints "ok api version", or what is wrong. kafka-clients in the class path.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ResponseHeader;

public class WireCheck {
  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] parts = line.split(" ");
      ApiKeys api = ApiKeys.forId(Integer.parseInt(parts[0]));
      short version = Short.parseShort(parts[1]);
      ByteBuffer frame = ByteBuffer.wrap(HexFormat.of().parseHex(parts.length > 2 ? parts[2] : ""));
      String said;
      try {
        ResponseHeader.parse(frame, api.responseHeaderVersion(version));
        int size = frame.remaining();
        AbstractResponse response = AbstractResponse.parseResponse(api, new ByteBufferAccessor(frame), version);
        int again = response.data().size(new ObjectSerializationCache(), version);
        if (frame.remaining() > 0) said = "left over: " + frame.remaining() + " of " + size + " bytes";
        else if (again != size) said = "written again it has " + again + " bytes, not " + size;
        else said = "ok";
      } catch (Throwable error) {
        said = "does not decode: " + error;
      }
      System.out.println(said + " " + api.name + " " + version);
    }
  }
}
