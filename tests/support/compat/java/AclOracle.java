// Apache Kafka's StandardAuthorizer behind lines of text.
//
// new SUPER_USERS|- ALLOW_EVERYONE                              a fresh authorizer
// acl TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION     one more ACL
// ask PRINCIPAL HOST OPERATION TYPE NAME                        prints ALLOWED or DENIED
// any PRINCIPAL HOST OPERATION TYPE                             prints ALLOWED or DENIED, for some resource of the type

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

public class AclOracle {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        static Context of(String principal, String host) throws Exception {
            int colon = principal.indexOf(':');
            KafkaPrincipal parsed = new KafkaPrincipal(principal.substring(0, colon), principal.substring(colon + 1));
            return new Context(parsed, InetAddress.getByName(host));
        }

        public String listenerName() { return "LISTENER"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "client"; }
        public int correlationId() { return 0; }
    }

    static StandardAuthorizer fresh(String superUsers, String allowEveryone) {
        StandardAuthorizer made = new StandardAuthorizer();
        Map<String, Object> configs = new HashMap<>();
        configs.put("node.id", "1");
        if (!superUsers.equals("-")) configs.put("super.users", superUsers);
        configs.put("allow.everyone.if.no.acl.found", allowEveryone);
        made.configure(configs);
        made.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        made.completeInitialLoad();
        return made;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        StandardAuthorizer authorizer = null;
        long id = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] word = line.trim().split(" +");
            switch (word[0]) {
                case "new" -> authorizer = fresh(word[1], word[2]);
                case "acl" -> authorizer.addAcl(new Uuid(1, ++id), new StandardAcl(
                    ResourceType.valueOf(word[1]), word[2], PatternType.valueOf(word[3]), word[4], word[5],
                    AclOperation.valueOf(word[6]), AclPermissionType.valueOf(word[7])));
                case "ask" -> {
                    ResourcePattern resource =
                        new ResourcePattern(ResourceType.valueOf(word[4]), word[5], PatternType.LITERAL);
                    Action action = new Action(AclOperation.valueOf(word[3]), resource, 1, false, false);
                    out.println(authorizer.authorize(Context.of(word[1], word[2]), List.of(action)).get(0));
                }
                case "any" -> out.println(authorizer.authorizeByResourceType(
                    Context.of(word[1], word[2]), AclOperation.valueOf(word[3]), ResourceType.valueOf(word[4])));
                default -> throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }
}
