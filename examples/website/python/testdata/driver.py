"""Reconciles a Website: arguments are server, token file, CA file, pages, namespace, name, and what happens."""
import sys, website
server, token, ca, pages, namespace, name, what = sys.argv[1:]
api = website.API(server, token, ca)
remaining = lambda: 60
if what == "changed meanwhile":
    get = api.request
    def request(method, path, *args, **named):
        answer = get(method, path, *args, **named)
        if "/websites/" in path and method == "GET":
            get("PATCH", path, {"spec": {"content": "newer"}}, website.MERGE_PATCH)
        return answer
    api.request = request
if what.startswith("expires"):
    left = int(what.split()[1])
    def remaining():
        global left
        left -= 1
        return left
try:
    print(website.Reconciler(api, website.Pages(pages)).reconcile(namespace, name, remaining))
except website.Expired:
    print("expired")
