"""Other systems as processes of this machine, to compare with: brokers of Kafka, members of etcd."""
