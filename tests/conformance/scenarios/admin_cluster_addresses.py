"""Clusters over REST whose addresses or peers are refused."""

from transcript import scenario


@scenario
def cluster_addresses_of_other_schemes(s):
    """Each address has its schemes, in Java's reading of an URI; the first wrong address counts, before the cluster itself."""
    c = "/admin/v2/clusters/" + s.tag
    members = ("serviceUrl", "serviceUrlTls", "brokerServiceUrl", "brokerServiceUrlTls", "proxyServiceUrl")
    for member in members:
        for url in ("xx", "http://a", "https://a", "pulsar://a", "pulsar+ssl://a", "HTTP://a:80", "pulsar:a", ""):
            s.note([member, url], s.http("PUT", c, {member: url}, quietly=True))
            s.http("DELETE", c, quietly=True)
    for url in ("http:a", "http://", "http:", "http:#f", "http://?q", "http:///a", "http://a:1,b:2", "http://a:x", "1:2", "://a", " http://a",
                "http://a{b", "http://a%zz", "http://a%20b", "http://\u00e4", "http://[::1]:1", "http://[::1", "http://a]b", "http://a|b", "http://a/b c",
                "http://a\tb", "http://a\u00a0b", 'http://a"b', "http://a/[x]", "http://a?[x]", "http://@", "http://a@b@c"):  # fmt: skip
        s.note(url, s.http("PUT", c, {"serviceUrl": url}, quietly=True))
        s.http("DELETE", c, quietly=True)
    s.call("PUT", c, dict.fromkeys(reversed(members), "xx"))
    s.call("PUT", "/admin/v2/clusters/standalone", {"proxyServiceUrl": "xx"})
    s.call("POST", c + "none", {"proxyServiceUrl": "xx"})
    s.call("POST", c + "none", {"proxyServiceUrl": "pulsar:x"})


@scenario
def peers_of_a_missing_cluster(s):
    """The names of the peers are judged before the cluster."""
    none = s.tag + "none"
    for peers in (["nowhere"], [none], ["nowhere", none], [none, "nowhere"], [], ["standalone"]):
        s.note(s.neutral(peers), s.neutral(s.http("POST", f"/admin/v2/clusters/{none}/peers", peers, quietly=True)))
