package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	"github.com/coder/websocket"
)

// stage is what one scenario works with: stock SDK clients of its own, closed when it ends.
type stage struct {
	context.Context
	isAlone bool
	clients []*azservicebus.Client
	ends    []func()
}

func (s *stage) close() {
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, client := range s.clients {
		_ = client.Close(closing)
	}
	for _, end := range s.ends {
		end()
	}
}

func (s *stage) variable(name string) string {
	if s.isAlone {
		name = "ALONE_" + name
	}
	return os.Getenv("TWINBUS_" + name)
}

// Errors have to surface at once, not after three retries.
var noRetries = azservicebus.RetryOptions{MaxRetries: -1}

func (s *stage) opened(connectionString string, options *azservicebus.ClientOptions) *azservicebus.Client {
	client := must(azservicebus.NewClientFromConnectionString(connectionString, options))
	s.clients = append(s.clients, client)
	return client
}

func (s *stage) client() *azservicebus.Client {
	return s.opened(s.variable("PLAIN"), &azservicebus.ClientOptions{RetryOptions: noRetries})
}

func (s *stage) retryingClient() *azservicebus.Client {
	return s.opened(s.variable("PLAIN"), &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 20, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: time.Second},
	})
}

// trusted names the server, because the SDK would look for HOST:PORT in the certificate.
func (s *stage) trusted() *tls.Config {
	authorities := x509.NewCertPool()
	truth(authorities.AppendCertsFromPEM(must(os.ReadFile(s.variable("AUTHORITY")))), "no certificate was read")
	return &tls.Config{RootCAs: authorities, ServerName: "localhost"}
}

func (s *stage) tlsClient() *azservicebus.Client {
	return s.opened(s.variable("TLS"), &azservicebus.ClientOptions{TLSConfig: s.trusted(), RetryOptions: noRetries})
}

func (s *stage) webSocketClient() *azservicebus.Client {
	return s.webSocketClientTo(s.variable("TLS"), "wss")
}

// webSocketClientTo dials the string's port; the SDK always says wss, and the function that dials may say ws instead.
func (s *stage) webSocketClientTo(connectionString, scheme string) *azservicebus.Client {
	dialer := &http.Client{Transport: &http.Transport{TLSClientConfig: s.trusted()}}
	return s.opened(connectionString, &azservicebus.ClientOptions{
		RetryOptions: noRetries,
		NewWebSocketConn: func(ctx context.Context, given azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			options := &websocket.DialOptions{Subprotocols: []string{"amqp"}, HTTPClient: dialer}
			socket, _, err := websocket.Dial(ctx, scheme+strings.TrimPrefix(given.Host, "wss"), options)
			if err != nil {
				return nil, err
			}
			return websocket.NetConn(context.Background(), socket, websocket.MessageBinary), nil
		},
	})
}

// administration is the stock client: it always speaks HTTPS to the string's port.
func (s *stage) administration() *admin.Client { return s.administrationAt("") }

func (s *stage) administrationAt(apiVersion string) *admin.Client {
	options := &admin.ClientOptions{ClientOptions: azcore.ClientOptions{
		APIVersion: apiVersion,
		Transport:  &http.Client{Transport: &http.Transport{TLSClientConfig: s.trusted()}},
	}}
	return must(admin.NewClientFromConnectionString(s.variable("TLS"), options))
}

// fresh is a name that no other scenario uses.
func fresh(word string) string {
	bytes := make([]byte, 4)
	must(rand.Read(bytes))
	return word + "-" + hex.EncodeToString(bytes)
}

func (s *stage) queue(properties admin.QueueProperties) string {
	name := fresh("queue")
	must(s.administration().CreateQueue(s, name, &admin.CreateQueueOptions{Properties: &properties}))
	return name
}

func (s *stage) topic(properties admin.TopicProperties, subscriptions ...string) string {
	name := fresh("topic")
	must(s.administration().CreateTopic(s, name, &admin.CreateTopicOptions{Properties: &properties}))
	for _, subscription := range subscriptions {
		must(s.administration().CreateSubscription(s, name, subscription, nil))
	}
	return name
}

func (s *stage) sender(client *azservicebus.Client, entity string) *azservicebus.Sender {
	return must(client.NewSender(entity, nil))
}

func (s *stage) receiver(client *azservicebus.Client, queue string) *azservicebus.Receiver {
	return must(client.NewReceiverForQueue(queue, nil))
}

func (s *stage) deadLetters(client *azservicebus.Client, queue string) *azservicebus.Receiver {
	return must(client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{SubQueue: azservicebus.SubQueueDeadLetter}))
}

func text(body string) *azservicebus.Message { return &azservicebus.Message{Body: []byte(body)} }

// send sends one message for each text.
func (s *stage) send(client *azservicebus.Client, entity string, bodies ...string) {
	sender := s.sender(client, entity)
	batch := must(sender.NewMessageBatch(s, nil))
	for _, body := range bodies {
		check(batch.AddMessage(text(body), nil))
	}
	check(sender.SendMessageBatch(s, batch, nil))
}

type receiving interface {
	ReceiveMessages(context.Context, int, *azservicebus.ReceiveMessagesOptions) ([]*azservicebus.ReceivedMessage, error)
}

// take returns exactly as many messages as asked for.
func (s *stage) take(receiver receiving, count int) []*azservicebus.ReceivedMessage {
	var taken []*azservicebus.ReceivedMessage
	for len(taken) < count {
		waiting, cancel := context.WithTimeout(s, 10*time.Second)
		more, err := receiver.ReceiveMessages(waiting, count-len(taken), nil)
		cancel()
		if err != nil {
			fail("%d of %d messages came: %v", len(taken), count, err)
		}
		taken = append(taken, more...)
	}
	return taken
}

// arriving waits for a message in the background; what comes out is its text, or why there is none.
func (s *stage) arriving(receiver receiving) <-chan string {
	came := make(chan string, 1)
	go func() {
		for {
			// A call that loses its connection ends with neither a message nor an error.
			messages, err := receiver.ReceiveMessages(s, 1, nil)
			if err != nil {
				came <- err.Error()
				return
			}
			if len(messages) > 0 {
				came <- string(messages[0].Body)
				return
			}
		}
	}()
	return came
}

// takeNone fails if a message comes.
func (s *stage) takeNone(receiver receiving) {
	waiting, cancel := context.WithTimeout(s, 300*time.Millisecond)
	defer cancel()
	messages, err := receiver.ReceiveMessages(waiting, 1, nil)
	if len(messages) > 0 {
		fail("a message came that should not: %s", messages[0].Body)
	}
	truth(errors.Is(err, context.DeadlineExceeded), "the receiver failed: "+err.Error())
}

func (s *stage) complete(receiver *azservicebus.Receiver, messages ...*azservicebus.ReceivedMessage) {
	for _, message := range messages {
		check(receiver.CompleteMessage(s, message, nil))
	}
}

func bodies(messages []*azservicebus.ReceivedMessage) []string {
	texts := []string{}
	for _, message := range messages {
		texts = append(texts, string(message.Body))
	}
	return texts
}

// code is the SDK's word for an error.
func code(err error) azservicebus.Code {
	var known *azservicebus.Error
	if !errors.As(err, &known) {
		fail("not an error of the SDK: %v", err)
	}
	return known.Code
}

// passTime moves the clock of the scenario's own namespace.
func (s *stage) passTime(seconds string) { s.control("/clock/" + seconds) }

// restart stops the scenario's own namespace and starts it again on its ports and its data.
func (s *stage) restart() { s.control("/restart") }

func (s *stage) control(order string) {
	truth(s.isAlone, "this namespace is not the scenario's own")
	request := must(http.NewRequestWithContext(s, http.MethodPost, os.Getenv("TWINBUS_CONTROL")+order, strings.NewReader("")))
	answer := must(http.DefaultClient.Do(request))
	_ = answer.Body.Close()
	equal(http.StatusOK, answer.StatusCode)
}
