// Package image starts the image with the Pulsar module of Testcontainers for Go.
package image

import (
	"context"
	"os"
	"testing"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/pulsar"
)

func TestModule(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	container, err := pulsar.Run(ctx, os.Getenv("MAGNETAR_IMAGE"))
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	url, err := container.BrokerURL(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.NewClient(client.ClientOptions{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	consumer, err := c.Subscribe(client.ConsumerOptions{Topic: "orders", SubscriptionName: "billing"})
	if err != nil {
		t.Fatal(err)
	}
	producer, err := c.CreateProducer(client.ProducerOptions{Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := producer.Send(ctx, &client.ProducerMessage{Payload: []byte("order 17")}); err != nil {
		t.Fatal(err)
	}
	message, err := consumer.Receive(ctx)
	if err != nil || string(message.Payload()) != "order 17" {
		t.Fatal(err, message)
	}
}
