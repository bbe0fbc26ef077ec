// BookKeeper's own client, for tests of what the other one wrote. Arguments: ZooKeeper, then any number of commands,
// each answered by one line with ledger id, last entry id and a hash of all payloads:
//   write DIGEST PASSWORD ENTRIES SIZE close|leave      read DIGEST PASSWORD LEDGER
import java.math.BigInteger;
import java.security.MessageDigest;
import java.util.Enumeration;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerEntry;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

public class LedgerTool {
    public static void main(String[] arguments) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri("zk+hierarchical://" + arguments[0] + "/ledgers");
        conf.setUseV2WireProtocol(true);
        BookKeeper client = new BookKeeper(conf);
        for (int at = 1; at < arguments.length; ) {
            String command = arguments[at];
            BookKeeper.DigestType digest = BookKeeper.DigestType.valueOf(arguments[at + 1]);
            byte[] password = arguments[at + 2].getBytes();
            MessageDigest hash = MessageDigest.getInstance("SHA-256");
            LedgerHandle ledger;
            if (command.equals("write")) {
                ledger = client.createLedger(3, 3, 2, digest, password);
                int size = Integer.parseInt(arguments[at + 4]);
                for (int i = 0; i < Integer.parseInt(arguments[at + 3]); i++) {
                    byte[] payload = (i + ":" + "x".repeat((i * 37) % size)).getBytes();
                    hash.update(payload);
                    ledger.addEntry(payload);
                }
                if (arguments[at + 5].equals("close")) ledger.close();
                at += 6;
            } else {
                ledger = client.openLedger(Long.parseLong(arguments[at + 3]), digest, password);
                long last = ledger.getLastAddConfirmed();
                if (last >= 0) {
                    Enumeration<LedgerEntry> entries = ledger.readEntries(0, last);
                    while (entries.hasMoreElements()) hash.update(entries.nextElement().getEntry());
                }
                at += 4;
            }
            String text = String.format("%064x", new BigInteger(1, hash.digest()));
            System.out.println("RESULT " + ledger.getId() + " " + ledger.getLastAddConfirmed() + " " + text);
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
