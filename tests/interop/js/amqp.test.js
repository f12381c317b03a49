// What the SDK's users reach only by its AMQP side: sections, annotations, ids of other types, tokens, many links.

const assert = require("node:assert/strict");
const { test } = require("node:test");
const {
  bodies,
  connectionString,
  newQueue,
  openAdministration,
  openClient,
  signature,
  take,
  takeNone,
} = require("./namespace");

const administration = openAdministration();
const client = openClient();

async function sentAndReceived(message) {
  const queue = await newQueue(administration);
  await client.createSender(queue).sendMessages(message);
  const receiver = client.createReceiver(queue);
  const [received] = await take(receiver);
  await receiver.completeMessage(received);
  await takeNone(receiver);
  return received;
}

test("annotations of the sender stand next to those of the broker", async () => {
  const received = await sentAndReceived({
    bodyType: "data",
    body: "annotated",
    messageAnnotations: { "x-opt-own": "mine", "x-opt-number": 7 },
    deliveryAnnotations: { "x-opt-on-the-way": "yes" },
    footer: { checksum: "abc" },
    header: { durable: true, priority: 5, timeToLive: 60_000 },
    properties: { messageId: "m", groupSequence: 3, userId: "someone" },
    applicationProperties: { plain: "p" },
  });
  const raw = received._rawAmqpMessage;
  assert.equal(raw.messageAnnotations["x-opt-own"], "mine");
  assert.equal(raw.messageAnnotations["x-opt-number"], 7);
  assert.ok(raw.messageAnnotations["x-opt-sequence-number"]);
  assert.equal(raw.deliveryAnnotations["x-opt-on-the-way"], "yes");
  assert.deepEqual(raw.footer, { checksum: "abc" });
  assert.equal(raw.header.priority, 5);
  assert.equal(raw.header.timeToLive, 60_000);
  assert.equal(raw.properties.groupSequence, 3);
  assert.equal(received.applicationProperties.plain, "p");
  assert.equal(received.sequenceNumber.toNumber(), 1);
});

// rhea takes bytes for a UUID, so there have to be sixteen.
const UUID = Buffer.from([...Array(16).keys()]);

test("message ids keep their type", async () => {
  assert.equal((await sentAndReceived({ body: "b", messageId: 4711 })).messageId, 4711);
  assert.deepEqual((await sentAndReceived({ body: "b", messageId: UUID })).messageId, UUID);
  assert.equal((await sentAndReceived({ body: "b", messageId: "", correlationId: 12 })).correlationId, 12);
});

test("a received message is sent again as it is", async () => {
  const first = await sentAndReceived({ body: "again", subject: "s", applicationProperties: { a: 1 } });
  const second = await sentAndReceived(first);
  assert.deepEqual([second.body, second.subject, second.applicationProperties], ["again", "s", { a: 1 }]);
  assert.equal(second.deliveryCount, 0);
  assert.equal(second.messageId, first.messageId);
});

test("a signature in the place of the key opens the namespace", async () => {
  const queue = await newQueue(administration);
  const rest = connectionString.replace(/SharedAccessKeyName=[^;]+;SharedAccessKey=[^;]+;/, "");
  const signed = (seconds) => `${rest}SharedAccessSignature=${signature(seconds)};`;
  await openClient({ connectionString: signed(600) }).createSender(queue).sendMessages({ body: "signed" });
  assert.deepEqual(bodies(await take(client.createReceiver(queue))), ["signed"]);
  const late = openClient({ connectionString: signed(-600) });
  await assert.rejects(late.createSender(queue).sendMessages({ body: "late" }), { code: "UnauthorizedAccess" });
});

test("many links share one connection", async () => {
  const queues = await Promise.all(Array.from({ length: 20 }, () => newQueue(administration)));
  await Promise.all(queues.map((queue) => client.createSender(queue).sendMessages({ body: queue })));
  const receivers = queues.map((queue) => client.createReceiver(queue));
  const received = await Promise.all(receivers.map((receiver) => take(receiver)));
  assert.deepEqual(received.flatMap(bodies), queues);
  await Promise.all(receivers.map((receiver, index) => receiver.completeMessage(received[index][0])));
  await Promise.all(receivers.map((receiver) => receiver.close()));
});

test("a thousand messages pass through in order while they are sent", async () => {
  const queue = await newQueue(administration);
  const sender = client.createSender(queue);
  const receiver = client.createReceiver(queue);
  const seen = [];
  const all = new Promise((resolve, reject) => {
    receiver.subscribe(
      {
        processMessage: async (message) => {
          seen.push(message.body);
          if (seen.length === 1000) resolve();
        },
        processError: async ({ error }) => reject(error),
      },
      { maxConcurrentCalls: 50 },
    );
  });
  const text = "x".repeat(500);
  for (let start = 0; start < 1000; start += 100) {
    await sender.sendMessages(Array.from({ length: 100 }, (_, index) => ({ body: `${start + index} ${text}` })));
  }
  await all;
  await receiver.close();
  assert.deepEqual(seen, Array.from({ length: 1000 }, (_, index) => `${index} ${text}`));
  assert.equal((await administration.getQueueRuntimeProperties(queue)).totalMessageCount, 0);
});

test("peek without bodies shows the rest of the messages", async () => {
  const queue = await newQueue(administration);
  await client.createSender(queue).sendMessages({ body: "hidden", subject: "shown" });
  const [peeked] = await client.createReceiver(queue).peekMessages(1, { omitMessageBody: true });
  assert.deepEqual([peeked.body, peeked.subject], [undefined, "shown"]);
});
