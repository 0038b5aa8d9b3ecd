#!/usr/bin/env python3
"""A worker for Websites: it takes their keys from dispatchers. Put rota_dispatch.py of ../../../clients/python beside it.

The defaults are right in a Pod that mounts a token and the dispatchers' certificate authority at /var/run/secrets/rota.
"""

import argparse
import logging
import os

import rota_dispatch
import website

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def in_cluster():
    """The API server's URL, as a Pod is told it."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc"), \
        os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def main():
    flags = argparse.ArgumentParser(description="Reconcile Websites whose keys come from dispatchers.")
    flags.add_argument("--state-dir", default="/var/lib/websites", help="folder of the pages, shared by all workers")
    flags.add_argument("--concurrency", type=int, default=8, help="how many Websites to reconcile at a time")
    flags.add_argument("--dispatchers", default="https://rota-dispatch.rota-system:8443", help="URL of the dispatchers")
    flags.add_argument("--token-file", default="/var/run/secrets/rota/token", help="token for the dispatchers")
    flags.add_argument("--ca-file", default="/var/run/secrets/rota/ca.crt", help="authority of the dispatchers")
    flags.add_argument("--server", default=in_cluster(), help="URL of the API server")
    flags.add_argument("--server-token-file", default=ACCOUNT + "/token", help="token for the API server")
    flags.add_argument("--server-ca-file", default=ACCOUNT + "/ca.crt", help="authority of the API server")
    args = flags.parse_args()
    logging.basicConfig(level=logging.INFO)

    api = website.API(args.server, args.server_token_file, args.server_ca_file)
    reconciler = website.Reconciler(api, website.Pages(args.state_dir))

    def handle(take):
        try:
            return reconciler.reconcile(take.namespace, take.name, take.remaining) or None
        except website.Expired:
            raise rota_dispatch.Ended() from None

    worker = rota_dispatch.Worker(args.dispatchers, [website.KIND], handle, concurrency=args.concurrency,
                                  token_file=args.token_file, ca_file=args.ca_file)
    worker.stop_on_signals()
    worker.run()


if __name__ == "__main__":
    main()
