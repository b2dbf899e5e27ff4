# One member of etcd, for docker/compose.yaml: Debian's, which is built from its own sources and kept up to date by it.
FROM debian:trixie-slim
RUN apt-get update && apt-get install --yes --no-install-recommends etcd-server etcd-client && rm -rf /var/lib/apt/lists/*
USER etcd
VOLUME /var/lib/etcd
EXPOSE 2379
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s CMD ["etcdctl", "endpoint", "health"]
ENTRYPOINT ["etcd"]
CMD ["--data-dir=/var/lib/etcd/data", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://etcd:2379", \
     "--auto-compaction-mode=revision", "--auto-compaction-retention=10000", "--quota-backend-bytes=2147483648", \
     "--grpc-keepalive-min-time=1s", "--log-level=warn"]
