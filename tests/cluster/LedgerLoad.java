// The rate of BookKeeper's own client: ZOOKEEPER ENTRIES SIZE WINDOW. Prints "RESULT seconds".
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;

public class LedgerLoad {
    public static void main(String[] arguments) throws Exception {
        ClientConfiguration conf = new ClientConfiguration();
        conf.setMetadataServiceUri("zk+hierarchical://" + arguments[0] + "/ledgers");
        conf.setUseV2WireProtocol(true);
        conf.setThrottleValue(0);
        BookKeeper client = new BookKeeper(conf);
        int entries = Integer.parseInt(arguments[1]);
        byte[] payload = new byte[Integer.parseInt(arguments[2])];
        int window = Integer.parseInt(arguments[3]);
        run(client, entries / 5, payload, window);  // compiled by then
        double seconds = run(client, entries, payload, window);
        System.out.println("RESULT " + seconds);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static double run(BookKeeper client, int entries, byte[] payload, int window) throws Exception {
        LedgerHandle ledger = client.createLedger(3, 3, 2, BookKeeper.DigestType.CRC32C, new byte[0]);
        Semaphore room = new Semaphore(window);
        CountDownLatch left = new CountDownLatch(entries);
        long began = System.nanoTime();
        for (int i = 0; i < entries; i++) {
            room.acquire();
            ledger.asyncAddEntry(payload, (code, handle, entry, context) -> {
                if (code != 0) Runtime.getRuntime().halt(1);
                room.release();
                left.countDown();
            }, null);
        }
        left.await();
        double seconds = (System.nanoTime() - began) / 1e9;
        ledger.close();
        return seconds;
    }
}
