"""Publishing, administration and options for tests of the source."""

import urllib.request

VALUE = "value"


def options(broker, topic=None, **more):
    """Options of a reader."""
    return {
        "service.url": broker.url,
        "admin.url": broker.http_url,
        **({"topic": topic} if topic else {}),
        **more,
    }


def publish(client, topic, count, first=0, key=None, **producer_options):
    """Messages whose payloads are the numbers from `first` on."""
    producer = client.create_producer(topic, block_if_queue_full=True, **producer_options)
    for k in range(first, first + count):
        more = {"partition_key": key(k)} if key else {}
        producer.send_async(b"%d" % k, lambda *_: None, properties={"n": str(k)}, event_timestamp=1000 + k, **more)
    producer.flush()
    producer.close()


def admin(broker, method, where, body=None):
    """A call of the admin API."""
    request = urllib.request.Request(f"{broker.http_url}/admin/v2/{where}", method=method, data=body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def path(topic):
    """The topic in paths of the admin API."""
    return topic.replace("://", "/", 1)


def numbers(frame):
    """The payloads as numbers, sorted."""
    return sorted(int(bytes(row.value)) for row in frame.select(VALUE).collect())
