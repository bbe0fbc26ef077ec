// The image as a generic container of Testcontainers for Node, which has no module for Pulsar. Produced and consumed over
// WebSockets, which Node speaks by itself: node --experimental-websocket --test (without the flag from Node 22 on).
import assert from "node:assert";
import test from "node:test";
import { GenericContainer, Wait } from "testcontainers";

const opened = (socket) =>
  new Promise((resolve, reject) => {
    socket.onopen = resolve;
    socket.onerror = reject;
  });
const received = (socket) => new Promise((resolve) => (socket.onmessage = (event) => resolve(JSON.parse(event.data))));

test("a message goes in and comes out", { timeout: 120_000 }, async () => {
  const container = await new GenericContainer(process.env.MAGNETAR_IMAGE)
    .withExposedPorts(6650, 8080)
    .withEnvironment({ PULSAR_PREFIX_webSocketServiceEnabled: "true" })
    .withWaitStrategy(Wait.forHttp("/admin/v2/brokers/ready", 8080))
    .start();
  try {
    const place = `ws://${container.getHost()}:${container.getMappedPort(8080)}/ws/v2`;
    const topic = "persistent/public/default/orders";
    const consumer = new WebSocket(`${place}/consumer/${topic}/billing`);
    await opened(consumer);
    const producer = new WebSocket(`${place}/producer/${topic}`);
    await opened(producer);

    const receipt = received(producer);
    const message = received(consumer);
    producer.send(JSON.stringify({ payload: Buffer.from("order 17").toString("base64") }));
    assert.equal((await receipt).result, "ok");
    const { messageId, payload } = await message;
    assert.equal(Buffer.from(payload, "base64").toString(), "order 17");
    consumer.send(JSON.stringify({ messageId }));
    producer.close();
    consumer.close();
  } finally {
    await container.stop();
  }
});
