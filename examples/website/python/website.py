"""The reconciler of Websites in Python, with nothing but the standard library.

It does what ../controller does in Go. It reads from the API server, not from a cache, and each write names the
resourceVersion that it has read: a worker that was paused, and goes on too late, overwrites nothing.
"""

import base64
import hashlib
import http.client
import json
import os
import ssl
import tempfile
import threading
import time
import urllib.parse

KIND = "Website.web.example.com"

GROUP_VERSION = "web.example.com/v1"
FINALIZER = "web.example.com/published"
CERTIFICATE_ANNOTATION = "web.example.com/certificate"
FIELD_MANAGER = "website-operator"
IMAGE = "halverneus/static-file-server:v1.8.10"

JSON, MERGE_PATCH, APPLY = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"

# How long to wait after somebody else has written the object meanwhile.
CONFLICT_DELAY = 0.2


class Expired(Exception):
    """The take has expired. Somebody else may have the key: the work on it must stop."""


class APIError(Exception):
    """An answer of the API server with an error."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status = status


class API:
    """An API server. It may be used by several threads.

    server is its URL. token_file is read for each request, since the kubelet renews it. ca_file has the API server's
    certificate authority.
    """

    def __init__(self, server, token_file, ca_file, timeout=10):
        url = urllib.parse.urlsplit(server)
        self.host, self.port = url.hostname, url.port or 443
        self.token_file, self.timeout = token_file, timeout
        self.tls = ssl.create_default_context(cafile=ca_file)
        self.threads = threading.local()

    def request(self, method, path, body=None, content_type=JSON, timeout=None):
        """Returns the answer; None if there is no such object and method is GET."""
        with open(self.token_file, encoding="ascii") as file:
            token = file.read().strip()
        headers = {"Authorization": f"Bearer {token}", "Accept": JSON, "User-Agent": "website-python"}
        if body is not None:
            headers["Content-Type"] = content_type
            body = json.dumps(body).encode()
        reused = getattr(self.threads, "connection", None) is not None
        while True:
            if not reused:
                self.threads.connection = http.client.HTTPSConnection(self.host, self.port, context=self.tls)
            connection = self.threads.connection
            connection.timeout = min(self.timeout, timeout or self.timeout)
            if connection.sock is not None:
                connection.sock.settimeout(connection.timeout)
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                text = response.read()
                break
            except (http.client.HTTPException, OSError):
                connection.close()
                self.threads.connection = None
                # The API server may have closed a connection that was idle. A write that was answered by nothing may
                # have been carried out, so that it is for the next reconcile to look.
                if not reused or method != "GET":
                    raise
                reused = False
        if response.status == 404 and method == "GET":
            return None
        if response.status >= 300:
            try:
                message = json.loads(text).get("message", "")
            except ValueError:
                message = text.decode(errors="replace")
            raise APIError(response.status, f"{method} {path}: {message}")
        return json.loads(text)


class Pages:
    """The published pages, one file per Website in a folder."""

    def __init__(self, folder):
        self.folder = folder

    def path(self, namespace, name):
        return os.path.join(self.folder, f"{namespace}_{name}.html")

    def publish(self, namespace, name, page):
        """Writes the page unless it is there already. Readers see the old page or the new one."""
        path = self.path(namespace, name)
        try:
            with open(path, "rb") as file:
                if file.read() == page:
                    return
        except FileNotFoundError:
            pass
        number, draft = tempfile.mkstemp(prefix=".page-", dir=self.folder)
        try:
            with os.fdopen(number, "wb") as file:
                file.write(page)
            os.replace(draft, path)
        except OSError:
            os.unlink(draft)
            raise

    def withdraw(self, namespace, name):
        try:
            os.unlink(self.path(namespace, name))
        except FileNotFoundError:
            pass


class Reconciler:
    """Brings what is published in line with Websites. It may be used by several threads for different Websites."""

    def __init__(self, api, pages):
        self.api, self.pages = api, pages

    def reconcile(self, namespace, name, remaining=lambda: 60.0):
        """Reconciles a Website. Returns the seconds after which it has to be looked at again, or 0.

        remaining returns how many seconds are left of the take. Expired is raised when there are none.
        """
        try:
            return Work(self.api, self.pages, namespace, name, remaining).run()
        except APIError as error:
            if error.status == 409:  # somebody else has written it meanwhile
                return CONFLICT_DELAY
            if error.status == 404:  # it was deleted meanwhile, which is a change of its own
                return 0
            raise


class Work:
    """The work on one Website."""

    def __init__(self, api, pages, namespace, name, remaining):
        self.api, self.pages, self.remaining = api, pages, remaining
        self.namespace, self.name = namespace, name
        self.site = None

    # Requests

    def left(self):
        seconds = self.remaining()
        if seconds <= 0:
            raise Expired()
        return seconds

    def path(self, prefix, resource, name="", query=""):
        return f"{prefix}/namespaces/{self.namespace}/{resource}" + (f"/{name}" if name else "") + query

    def get(self, prefix, resource, name):
        found = self.api.request("GET", self.path(prefix, resource, name), timeout=self.left())
        self.left()
        return found

    def write(self, method, path, body, content_type=JSON):
        return self.api.request(method, path, body, content_type, timeout=self.left())

    def site_path(self, part=""):
        return self.path("/apis/" + GROUP_VERSION, "websites", self.name, part)

    # What is to be done

    def run(self):
        self.site = self.get("/apis/" + GROUP_VERSION, "websites", self.name)
        if self.site is None:
            # Only a Website without the finalizer is gone by now. The garbage collector takes its children.
            self.pages.withdraw(self.namespace, self.name)
            return 0
        if "deletionTimestamp" in self.site["metadata"]:
            if FINALIZER in self.site["metadata"].get("finalizers", []):
                self.pages.withdraw(self.namespace, self.name)
                self.protect(False)
            return 0
        spec = self.site["spec"]
        self.protect(spec.get("protected", False))
        page = render(spec)
        self.left()
        self.pages.publish(self.namespace, self.name, page)
        self.write_config_map(page)
        certificate, missing = self.certificate()
        # Without its certificate the page is not served anew, and above all not without HTTPS.
        if not missing:
            self.apply_deployment(certificate)
            self.write_service()
        self.write_status(page, missing)
        return 0

    def protect(self, wanted):
        """Has the finalizer on the Website, or not."""
        meta = self.site["metadata"]
        before = meta.get("finalizers", [])
        after = [f for f in before if f != FINALIZER]
        if wanted:
            after = before if FINALIZER in before else before + [FINALIZER]
        if after != before:
            patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": after}}
            self.site = self.write("PATCH", self.site_path(), patch, MERGE_PATCH)

    def owner(self):
        return {
            "apiVersion": GROUP_VERSION, "kind": "Website", "name": self.name, "uid": self.site["metadata"]["uid"],
            "controller": True, "blockOwnerDeletion": True,
        }

    def owners(self, child):
        """The child's owners, with this Website in place of one of its name that is gone."""
        others = [o for o in child["metadata"].get("ownerReferences", [])
                  if (o["kind"], o["name"]) != ("Website", self.name)]
        return others + [self.owner()]

    def labels(self):
        return {"app.kubernetes.io/name": "website", "app.kubernetes.io/instance": self.name}

    def write_config_map(self, page):
        name, data = self.name + "-page", {"index.html": page.decode()}
        there = self.get("/api/v1", "configmaps", name)
        if there is None:
            meta = {"namespace": self.namespace, "name": name, "ownerReferences": [self.owner()]}
            self.write("POST", self.path("/api/v1", "configmaps"),
                       {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})
            return
        owners = self.owners(there)
        if there.get("data") != data or there["metadata"].get("ownerReferences") != owners:
            there["data"], there["metadata"]["ownerReferences"] = data, owners
            self.write("PUT", self.path("/api/v1", "configmaps", name), there)

    def certificate(self):
        """Returns the checksum of the certificate, and what is missing."""
        name = self.site["spec"].get("secretName")
        if not name:
            return "", ""
        secret = self.get("/api/v1", "secrets", name)
        if secret is None:
            return "", f"There is no Secret {name}."
        data = {key: base64.b64decode(value) for key, value in secret.get("data", {}).items()}
        crt, key = data.get("tls.crt", b""), data.get("tls.key", b"")
        if not crt or not key:
            return "", f"Secret {name} lacks tls.crt or tls.key."
        return hashlib.sha256(b"%d %s%s" % (len(crt), crt, key)).hexdigest(), ""

    def apply_deployment(self, certificate):
        there = self.get("/apis/apps/v1", "deployments", self.name)
        want = self.deployment(certificate)
        if there is not None:
            if contains(there, want):
                return
            want["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"]
        query = f"?fieldManager={FIELD_MANAGER}&force=true"
        self.write("PATCH", self.path("/apis/apps/v1", "deployments", self.name, query), want, APPLY)

    def deployment(self, certificate):
        server = {
            "name": "web", "image": IMAGE,
            "ports": [{"name": "web", "containerPort": 8080, "protocol": "TCP"}],
            "env": [{"name": "PORT", "value": "8080"}, {"name": "FOLDER", "value": "/web"}],
            "volumeMounts": [{"name": "page", "mountPath": "/web", "readOnly": True}],
        }
        meta = {"labels": self.labels()}
        volumes = [{"name": "page", "configMap": {"name": self.name + "-page"}}]
        if certificate:
            meta["annotations"] = {CERTIFICATE_ANNOTATION: certificate}
            volumes.append({"name": "tls", "secret": {"secretName": self.site["spec"]["secretName"]}})
            server["volumeMounts"].append({"name": "tls", "mountPath": "/tls", "readOnly": True})
            server["env"] += [{"name": "TLS_CERT", "value": "/tls/tls.crt"}, {"name": "TLS_KEY", "value": "/tls/tls.key"}]
        return {
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"namespace": self.namespace, "name": self.name, "ownerReferences": [self.owner()]},
            "spec": {
                "replicas": self.site["spec"].get("replicas", 1), "selector": {"matchLabels": self.labels()},
                "template": {"metadata": meta, "spec": {"volumes": volumes, "containers": [server]}},
            },
        }

    def write_service(self):
        port = 443 if self.site["spec"].get("secretName") else 80
        ports = [{"name": "web", "port": port, "protocol": "TCP", "targetPort": "web"}]
        there = self.get("/api/v1", "services", self.name)
        if there is None:
            # Headless: whoever routes to thousands of Websites finds their Pods by itself.
            self.write("POST", self.path("/api/v1", "services"), {
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"namespace": self.namespace, "name": self.name, "ownerReferences": [self.owner()]},
                "spec": {"selector": self.labels(), "ports": ports, "clusterIP": "None"},
            })
            return
        meta, selector, owners = there["metadata"], there["spec"].get("selector", {}), self.owners(there)
        if selector == self.labels() and there["spec"]["ports"] == ports and meta.get("ownerReferences") == owners:
            return
        self.write("PATCH", self.path("/api/v1", "services", self.name), {
            "metadata": {"resourceVersion": meta["resourceVersion"], "ownerReferences": owners},
            "spec": {"selector": {**dict.fromkeys(selector), **self.labels()}, "ports": ports},  # null removes a label
        }, MERGE_PATCH)

    def write_status(self, page, missing):
        generation = self.site["metadata"]["generation"]
        before = self.site.get("status", {})
        status = dict(before, observedGeneration=generation, checksum=hashlib.sha256(page).hexdigest())
        wanted = {"Published": ("True", "Published", "The page is published.")}
        if self.site["spec"].get("secretName"):
            wanted["CertificateFound"] = (
                "True", "Found", "The page is served with the certificate of the Secret.",
            ) if not missing else (
                "False", "Missing", missing + " Deployment and Service stay as they are until it is there.",
            )
        status["conditions"] = conditions(before.get("conditions", []), wanted, generation)
        if status != before:
            # PUT, not PATCH: where the Website has changed meanwhile, the conflict keeps an old status away.
            self.write("PUT", self.site_path("/status"), dict(self.site, status=status))


def conditions(before, wanted, generation):
    """Returns the conditions with those that are wanted, as they were where they are right."""
    out = [c for c in before if c["type"] in wanted or c["type"] not in ("Published", "CertificateFound")]
    for name, (status, reason, message) in wanted.items():
        fields = {"status": status, "reason": reason, "message": message, "observedGeneration": generation}
        old = next((c for c in out if c["type"] == name), None)
        if old is None:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            out.append({"type": name, "lastTransitionTime": now, **fields})
            continue
        new = {**old, **fields}
        if old["status"] != status:
            new["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        out[out.index(old)] = new
    return out


def contains(there, want):
    """Says whether all that is wanted is there. What others have set beside it is theirs."""
    if isinstance(want, dict):
        return isinstance(there, dict) and all(k in there and contains(there[k], v) for k, v in want.items())
    if isinstance(want, list):
        return (isinstance(there, list) and len(there) == len(want)
                and all(contains(t, w) for t, w in zip(there, want)))
    return there == want


def render(spec):
    title, content = escape(spec.get("title", "")), escape(spec.get("content", ""))
    return f"<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n<p>{content}</p>\n".encode()


def escape(text):
    """Go's html.EscapeString: workers in both languages write the same page."""
    for old, new in (("&", "&amp;"), ("'", "&#39;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&#34;")):
        text = text.replace(old, new)
    return text
