import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.PulsarClient;
import org.junit.jupiter.api.Test;
import org.testcontainers.containers.PulsarContainer;
import org.testcontainers.utility.DockerImageName;

/** The module for Apache Pulsar of Testcontainers, with the image of this project in its place. */
class SubstituteTest {
    static final DockerImageName IMAGE = DockerImageName.parse(System.getenv("MAGNETAR_IMAGE"))
            .asCompatibleSubstituteFor("apachepulsar/pulsar");

    @Test
    void aMessageGoesThrough() throws Exception {
        try (var broker = new PulsarContainer(IMAGE).withEnv("PULSAR_PREFIX_brokerDeduplicationEnabled", "true")) {
            broker.start();
            try (var client = PulsarClient.builder().serviceUrl(broker.getPulsarBrokerUrl()).build();
                    var consumer = client.newConsumer().topic("orders").subscriptionName("billing").subscribe();
                    var producer = client.newProducer().topic("orders").create()) {
                producer.send("order 17".getBytes());
                assertEquals("order 17", new String(consumer.receive(20, TimeUnit.SECONDS).getData()));
            }
        }
    }
}
