// The namespace under test, as the driver describes it in the environment:
//
// TWINBUS_TRANSPORT  tcp, tls, wss or ws: what carries AMQP
// TWINBUS_PLAIN      connection string for AMQP without TLS
// TWINBUS_TLS        connection string of the TLS port, which speaks AMQP, WebSocket and HTTPS
// TWINBUS_HTTP       the same port, where HTTP is answered without TLS
// TWINBUS_CLOCK      where the driver moves the server's clock ahead
//
// Everything below hands out stock SDK objects; only where the SDK knows no way to do without TLS is it shown one.

const { createHmac, randomBytes } = require("node:crypto");
const { after } = require("node:test");
const {
  ServiceBusAdministrationClient,
  ServiceBusClient,
  parseServiceBusConnectionString,
} = require("@azure/service-bus");
const WebSocket = require("ws");

const { TWINBUS_TRANSPORT, TWINBUS_PLAIN, TWINBUS_TLS, TWINBUS_HTTP, TWINBUS_CLOCK } = process.env;

// No test waits for a message that does not come longer than this.
const WAIT = { maxWaitTimeInMs: 5000 };
const NOTHING_IN_SIGHT = { maxWaitTimeInMs: 200 };

class PlainWebSocket extends WebSocket {
  constructor(url, protocols, options) {
    super(url.replace(/^wss:\/\/[^/]+/, TWINBUS_HTTP.replace("http:", "ws:")), protocols, options);
  }
}

const TRANSPORTS = {
  tcp: [TWINBUS_PLAIN, {}],
  tls: [TWINBUS_TLS, {}],
  wss: [TWINBUS_TLS, { webSocketOptions: { webSocket: WebSocket } }],
  ws: [TWINBUS_PLAIN, { webSocketOptions: { webSocket: PlainWebSocket } }],
};
const [connectionString, transportOptions] = TRANSPORTS[TWINBUS_TRANSPORT];

// Errors have to surface at once, not after three retries of 30 seconds.
const NO_RETRIES = { maxRetries: 0, retryDelayInMs: 50, timeoutInMs: 10000 };

/** A client that is closed when the file's tests are through. */
function openClient(options = {}) {
  const client = new ServiceBusClient(options.connectionString ?? connectionString, {
    ...transportOptions,
    retryOptions: { ...NO_RETRIES, ...options.retryOptions },
  });
  after(() => client.close());
  return client;
}

/** The SDK always uses HTTPS for this, which the port without TLS takes too. */
function openAdministration(given = connectionString) {
  return new ServiceBusAdministrationClient(given);
}

/** A name that no other test and no other transport uses. */
function freshName(word) {
  return `${word}-${randomBytes(4).toString("hex")}`;
}

/** Moves the server's clock, not ours, and returns what it shows then. */
async function passTime(seconds) {
  const answer = await fetch(`${TWINBUS_CLOCK}/${seconds}`, { method: "POST" });
  if (!answer.ok) throw new Error(`the driver did not move the clock: ${answer.status}`);
  return Number(await answer.text());
}

/** Cuts every connection to the namespace, or detaches the links to one entity. */
async function disconnect(entity = undefined) {
  const path = "/$connections/disconnect" + (entity === undefined ? "" : `?entity=${entity}`);
  const answer = await fetch(TWINBUS_HTTP + path, { method: "POST", headers: { authorization: signature() } });
  if (!answer.ok) throw new Error(`nothing was disconnected: ${answer.status} ${await answer.text()}`);
}

/** A token for the whole namespace. */
function signature(expiresInSeconds = 600) {
  const { endpoint, sharedAccessKey, sharedAccessKeyName } = parseServiceBusConnectionString(connectionString);
  const resource = encodeURIComponent(endpoint);
  const expiry = Math.floor(Date.now() / 1000) + expiresInSeconds;
  const signed = createHmac("sha256", sharedAccessKey).update(`${resource}\n${expiry}`).digest("base64");
  return `SharedAccessSignature sr=${resource}&sig=${encodeURIComponent(signed)}&se=${expiry}&skn=${sharedAccessKeyName}`;
}

async function newQueue(administration, options = {}) {
  const { name } = await administration.createQueue(freshName("queue"), options);
  return name;
}

/** A topic and the names of its subscriptions. */
async function newTopic(administration, subscriptions, options = {}) {
  const { name } = await administration.createTopic(freshName("topic"), options);
  for (const subscription of subscriptions) await administration.createSubscription(name, subscription);
  return name;
}

/** Exactly as many messages as asked for, or the test fails. */
async function take(receiver, count = 1) {
  const messages = [];
  while (messages.length < count) {
    const more = await receiver.receiveMessages(count - messages.length, WAIT);
    if (more.length === 0) throw new Error(`${messages.length} of ${count} messages came`);
    messages.push(...more);
  }
  return messages;
}

async function takeNone(receiver) {
  const messages = await receiver.receiveMessages(1, NOTHING_IN_SIGHT);
  if (messages.length > 0) throw new Error(`a message came that should not: ${JSON.stringify(messages[0].body)}`);
}

const bodies = (messages) => messages.map((message) => message.body);

module.exports = {
  bodies,
  connectionString,
  disconnect,
  freshName,
  newQueue,
  newTopic,
  openAdministration,
  openClient,
  passTime,
  signature,
  take,
  takeNone,
};
