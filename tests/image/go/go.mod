module example.org/image

go 1.22

require (
	github.com/apache/pulsar-client-go v0.14.0
	github.com/testcontainers/testcontainers-go v0.35.0
	github.com/testcontainers/testcontainers-go/modules/pulsar v0.35.0
)
