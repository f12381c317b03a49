package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
)

func init() {
	scenario("send", "a message arrives with everything it was sent with", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		sent := &azservicebus.Message{
			Body:             []byte("größer"),
			MessageID:        ptr("m-1"),
			CorrelationID:    ptr("c-1"),
			ContentType:      ptr("text/plain"),
			Subject:          ptr("subject"),
			To:               ptr("to"),
			ReplyTo:          ptr("reply"),
			ReplyToSessionID: ptr("reply-session"),
			PartitionKey:     ptr("key"),
			TimeToLive:       ptr(10 * time.Minute),
			ApplicationProperties: map[string]any{
				"text": "t", "whole": int64(7), "small": int32(-7), "ratio": 1.5, "yes": true, "nothing": nil,
			},
		}
		before := time.Now()
		check(s.sender(client, queue).SendMessage(s, sent, nil))
		receiver := s.receiver(client, queue)
		got := s.take(receiver, 1)[0]
		equal(sent, got.Message())
		equal(uint32(0), got.DeliveryCount-1) // the SDK counts this delivery
		equal(int64(1), *got.SequenceNumber)
		equal(azservicebus.MessageStateActive, got.State)
		truth(got.EnqueuedTime.After(before.Add(-time.Second)), "enqueued before it was sent")
		truth(got.LockedUntil.After(before.Add(50*time.Second)), "locked for less than a minute")
		equal(got.EnqueuedTime.Add(10*time.Minute), *got.ExpiresAt)
		s.complete(receiver, got)
		s.takeNone(receiver)
	})

	scenario("send", "AMQP bodies of every kind arrive as they were", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		sender := s.sender(client, queue)
		kinds := []azservicebus.AMQPAnnotatedMessageBody{
			{Data: [][]byte{[]byte("one"), []byte("two")}},
			{Value: map[string]any{"a": int64(1)}},
			{Value: "text"},
			{Sequence: [][]any{{int64(1), "two"}, {true}}},
		}
		for _, kind := range kinds {
			check(sender.SendAMQPAnnotatedMessage(s, &azservicebus.AMQPAnnotatedMessage{
				Body:               kind,
				Properties:         &azservicebus.AMQPAnnotatedMessageProperties{MessageID: "id"},
				MessageAnnotations: map[any]any{"own": "annotation"},
				Footer:             map[any]any{"own": "footer"},
				Header:             &azservicebus.AMQPAnnotatedMessageHeader{Priority: 7},
			}, nil))
		}
		receiver := s.receiver(client, queue)
		for index, got := range s.take(receiver, len(kinds)) {
			raw := got.RawAMQPMessage
			equal(kinds[index], raw.Body)
			equal("annotation", raw.MessageAnnotations["own"])
			equal("footer", raw.Footer["own"])
			equal(uint8(7), raw.Header.Priority)
		}
	})

	scenario("send", "a message over the limit is refused as too large", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		sender := s.sender(client, queue)
		err := sender.SendMessage(s, &azservicebus.Message{Body: make([]byte, 2*1024*1024)}, nil)
		truth(errors.Is(err, azservicebus.ErrMessageTooLarge), fmt.Sprintf("not too large: %v", err))
		check(sender.SendMessage(s, text("small"), nil))
	})

	scenario("batch", "a batch that is filled until the SDK calls it full arrives whole", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		sender := s.sender(client, queue)
		batch := must(sender.NewMessageBatch(s, nil))
		message := &azservicebus.Message{Body: make([]byte, 1000), ApplicationProperties: map[string]any{"number": int64(1)}}
		var err error
		for err == nil {
			err = batch.AddMessage(message, nil)
		}
		truth(errors.Is(err, azservicebus.ErrMessageTooLarge), fmt.Sprintf("not full: %v", err))
		count := int(batch.NumMessages())
		truth(count > 100, fmt.Sprintf("full with %d messages", count))
		check(sender.SendMessageBatch(s, batch, nil))
		must(s.administration().GetQueue(s, queue, nil))
		properties := must(s.administration().GetQueueRuntimeProperties(s, queue, nil))
		equal(count, int(properties.ActiveMessageCount))
		receiver := must(client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
		}))
		s.take(receiver, count)
		s.takeNone(receiver)
	})

	scenario("batch", "a batch of one key goes to a partitioned queue in order", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{EnablePartitioning: ptr(true)}), s.client()
		sender := s.sender(client, queue)
		batch := must(sender.NewMessageBatch(s, nil))
		wanted := []string{}
		for number := range 20 {
			wanted = append(wanted, fmt.Sprint(number))
			check(batch.AddMessage(&azservicebus.Message{Body: []byte(wanted[number]), PartitionKey: ptr("key")}, nil))
		}
		check(sender.SendMessageBatch(s, batch, nil))
		got := s.take(s.receiver(client, queue), len(wanted))
		equal(wanted, bodies(got))
		for _, message := range got {
			equal(*got[0].SequenceNumber>>48, *message.SequenceNumber>>48)
		}
	})

	scenario("partitioned entities", "messages without a key reach all fragments and come back", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{EnablePartitioning: ptr(true)}), s.client()
		sender, fragments, seen := s.sender(client, queue), map[int64]bool{}, map[string]bool{}
		for number := range 32 {
			check(sender.SendMessage(s, text(fmt.Sprint(number)), nil))
		}
		receiver := s.receiver(client, queue)
		for _, message := range s.take(receiver, 32) {
			fragments[*message.SequenceNumber>>48] = true
			seen[string(message.Body)] = true
			s.complete(receiver, message)
		}
		equal(16, len(fragments))
		equal(32, len(seen))
	})

	scenario("receive", "receive and delete takes messages at once", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		s.send(client, queue, "one", "two", "three")
		receiver := must(client.NewReceiverForQueue(queue, &azservicebus.ReceiverOptions{
			ReceiveMode: azservicebus.ReceiveModeReceiveAndDelete,
		}))
		equal([]string{"one", "two", "three"}, bodies(s.take(receiver, 3)))
		equal(int64(0), must(s.administration().GetQueueRuntimeProperties(s, queue, nil)).TotalMessageCount)
	})

	scenario("receive", "peeking pages through everything and locks nothing", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		s.send(client, queue, "one", "two", "three")
		receiver := s.receiver(client, queue)
		equal([]string{"one", "two"}, bodies(must(receiver.PeekMessages(s, 2, nil))))
		equal([]string{"three"}, bodies(must(receiver.PeekMessages(s, 2, nil))))
		equal([]string{}, bodies(must(receiver.PeekMessages(s, 2, nil))))
		from := &azservicebus.PeekMessagesOptions{FromSequenceNumber: ptr(int64(2))}
		equal([]string{"two", "three"}, bodies(must(receiver.PeekMessages(s, 9, from))))
		equal(3, len(s.take(receiver, 3)))
	})

	scenario("receive", "a message that comes while a receiver waits is received", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		receiver := s.receiver(client, queue)
		came := s.arriving(receiver)
		s.send(s.client(), queue, "late")
		equal("late", <-came)
	})

	scenario("receive", "a message that was received into a call that ended comes again", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		receiver := s.receiver(client, queue)
		s.takeNone(receiver)
		s.send(client, queue, "between two calls")
		got := s.take(receiver, 1)
		equal("between two calls", string(got[0].Body))
		s.complete(receiver, got[0])
	})

	scenario("settlement", "an abandoned message comes again with its changes and its count", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		s.send(client, queue, "again")
		receiver := s.receiver(client, queue)
		first := s.take(receiver, 1)[0]
		check(receiver.AbandonMessage(s, first, &azservicebus.AbandonMessageOptions{
			PropertiesToModify: map[string]any{"attempt": "second"},
		}))
		second := s.take(receiver, 1)[0]
		equal(first.DeliveryCount+1, second.DeliveryCount)
		equal("second", second.ApplicationProperties["attempt"])
		s.complete(receiver, second)
		s.takeNone(receiver)
	})

	scenarioAlone("settlement", "an abandoned message comes again at the delivery time that the receiver gave", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		s.send(client, queue, "later")
		receiver := s.receiver(client, queue)
		message := s.take(receiver, 1)[0]
		until := message.LockedUntil.Add(time.Hour)
		check(receiver.AbandonMessage(s, message, &azservicebus.AbandonMessageOptions{
			PropertiesToModify: map[string]any{"x-opt-delivery-time": until},
		}))
		peeked := must(receiver.PeekMessages(s, 1, nil))[0]
		equal(azservicebus.MessageStateScheduled, peeked.State)
		equal(until.UnixMilli(), peeked.ScheduledEnqueueTime.UnixMilli())
		s.passTime("3700")
		// The first connection was silent for an hour and ends at the next beat of the namespace.
		later := s.receiver(s.client(), queue)
		again := s.take(later, 1)[0]
		equal(message.DeliveryCount+1, again.DeliveryCount)
		equal(0, len(again.ApplicationProperties))
		s.complete(later, again)
	})

	scenario("settlement", "a message is settled by its lock token from another connection", func(s *stage) {
		queue := s.queue(admin.QueueProperties{})
		client := s.client()
		s.send(client, queue, "one", "two")
		messages := s.take(s.receiver(client, queue), 2)
		other := s.receiver(s.client(), queue)
		check(other.CompleteMessage(s, &azservicebus.ReceivedMessage{LockToken: messages[0].LockToken}, nil))
		check(other.AbandonMessage(s, &azservicebus.ReceivedMessage{LockToken: messages[1].LockToken}, nil))
		equal([]string{"two"}, bodies(s.take(other, 1)))
	})

	scenario("lock renewal", "a renewed lock ends later, and by its lock token alone too", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{LockDuration: ptr("PT10S")}), s.client()
		s.send(client, queue, "held")
		receiver := s.receiver(client, queue)
		message := s.take(receiver, 1)[0]
		before := *message.LockedUntil
		time.Sleep(20 * time.Millisecond)
		check(receiver.RenewMessageLock(s, message, nil))
		truth(message.LockedUntil.After(before), "the lock does not end later")
		bare := &azservicebus.ReceivedMessage{LockToken: message.LockToken}
		check(s.receiver(s.client(), queue).RenewMessageLock(s, bare, nil))
		truth(!bare.LockedUntil.Before(*message.LockedUntil), "the lock ends sooner")
		s.complete(receiver, message)
	})

	scenarioAlone("lock renewal", "a lock that ended is lost, and the message comes again", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{LockDuration: ptr("PT10S")}), s.client()
		s.send(client, queue, "lost")
		receiver := s.receiver(client, queue)
		message := s.take(receiver, 1)[0]
		s.passTime("11")
		equal(azservicebus.CodeLockLost, code(receiver.RenewMessageLock(s, message, nil)))
		equal(azservicebus.CodeLockLost, code(receiver.CompleteMessage(s, message, nil)))
		again := s.take(receiver, 1)[0]
		equal(uint32(2), again.DeliveryCount)
		s.complete(receiver, again)
	})

	scenario("dead-letter", "a message is dead-lettered with a reason and received there", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		s.send(client, queue, "bad")
		receiver := s.receiver(client, queue)
		check(receiver.DeadLetterMessage(s, s.take(receiver, 1)[0], &azservicebus.DeadLetterOptions{
			Reason: ptr("reason"), ErrorDescription: ptr("description"), PropertiesToModify: map[string]any{"seen": true},
		}))
		dead := s.deadLetters(client, queue)
		message := s.take(dead, 1)[0]
		equal("reason", *message.DeadLetterReason)
		equal("description", *message.DeadLetterErrorDescription)
		equal(true, message.ApplicationProperties["seen"])
		check(dead.AbandonMessage(s, message, nil))
		again := s.take(dead, 1)[0]
		equal(message.DeliveryCount, again.DeliveryCount)
		s.complete(dead, again)
		equal(int32(0), must(s.administration().GetQueueRuntimeProperties(s, queue, nil)).DeadLetterMessageCount)
	})

	scenario("dead-letter", "too many deliveries dead-letter a message", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{MaxDeliveryCount: ptr(int32(2))}), s.client()
		s.send(client, queue, "stubborn")
		receiver := s.receiver(client, queue)
		for range 2 {
			check(receiver.AbandonMessage(s, s.take(receiver, 1)[0], nil))
		}
		equal("MaxDeliveryCountExceeded", *s.take(s.deadLetters(client, queue), 1)[0].DeadLetterReason)
	})

	scenarioAlone("dead-letter", "an expired message is dead-lettered where the queue says so", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{DeadLetteringOnMessageExpiration: ptr(true)}), s.client()
		check(s.sender(client, queue).SendMessage(s, &azservicebus.Message{TimeToLive: ptr(time.Minute)}, nil))
		s.passTime("61")
		equal("TTLExpiredException", *s.take(s.deadLetters(client, queue), 1)[0].DeadLetterReason)
	})

	scenario("deferral", "a deferred message is received by its number", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		s.send(client, queue, "later", "now")
		receiver := s.receiver(client, queue)
		messages := s.take(receiver, 2)
		check(receiver.DeferMessage(s, messages[0], &azservicebus.DeferMessageOptions{
			PropertiesToModify: map[string]any{"why": "later"},
		}))
		s.complete(receiver, messages[1])
		equal(azservicebus.MessageStateDeferred, must(receiver.PeekMessages(s, 1, nil))[0].State)
		deferred := must(receiver.ReceiveDeferredMessages(s, []int64{*messages[0].SequenceNumber}, nil))
		equal([]string{"later"}, bodies(deferred))
		equal("later", deferred[0].ApplicationProperties["why"])
		check(receiver.CompleteMessage(s, deferred[0], nil))
		_, err := receiver.ReceiveDeferredMessages(s, []int64{*messages[0].SequenceNumber}, nil)
		truth(err != nil, "a completed message was received by its number")
	})

	scenario("duplicate detection", "a message id counts once", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{RequiresDuplicateDetection: ptr(true)}), s.client()
		sender := s.sender(client, queue)
		for _, id := range []string{"a", "b", "a"} {
			check(sender.SendMessage(s, &azservicebus.Message{Body: []byte(id), MessageID: ptr(id)}, nil))
		}
		receiver := s.receiver(client, queue)
		equal([]string{"a", "b"}, bodies(s.take(receiver, 2)))
		s.takeNone(receiver)
	})

	scenarioAlone("scheduling", "scheduled messages come when they are due, and cancelled ones never", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		sender, receiver := s.sender(client, queue), s.receiver(client, queue)
		// By the clock of the namespace, which other scenarios have moved.
		due := must(s.administration().GetQueueRuntimeProperties(s, queue, nil)).CreatedAt.Add(90 * time.Second)
		numbers := must(sender.ScheduleMessages(s, []*azservicebus.Message{text("one"), text("two")}, due, nil))
		equal(2, len(numbers))
		annotated := []*azservicebus.AMQPAnnotatedMessage{{Body: azservicebus.AMQPAnnotatedMessageBody{Value: "three"}}}
		numbers = append(numbers, must(sender.ScheduleAMQPAnnotatedMessages(s, annotated, due, nil))...)
		peeked := must(receiver.PeekMessages(s, 9, nil))
		equal(3, len(peeked))
		equal(azservicebus.MessageStateScheduled, peeked[0].State)
		equal(int32(3), must(s.administration().GetQueueRuntimeProperties(s, queue, nil)).ScheduledMessageCount)
		s.takeNone(receiver)
		check(sender.CancelScheduledMessages(s, numbers[1:], nil))
		s.passTime("100")
		got := s.take(receiver, 1)
		equal([]string{"one"}, bodies(got))
		truth(!got[0].ScheduledEnqueueTime.Before(due.Add(-time.Second)), "it came before it was due")
		s.takeNone(receiver)
	})

	scenario("scheduling", "a message with an enqueue time of its own waits for it", func(s *stage) {
		queue, client := s.queue(admin.QueueProperties{}), s.client()
		due := time.Now().Add(700 * time.Millisecond)
		check(s.sender(client, queue).SendMessage(s, &azservicebus.Message{ScheduledEnqueueTime: &due}, nil))
		s.take(s.receiver(client, queue), 1)
		truth(!time.Now().Before(due), "it came before it was due")
	})
}
