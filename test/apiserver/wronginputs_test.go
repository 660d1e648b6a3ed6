// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
)

// secretText is in inputs that no error may repeat.
const secretText = "s3cr3t-d0-n0t-r3p34t"

// object and list keep the table short.
type (
	object = map[string]any
	list   = []any
)

func wrongInputs() []wrong {
	return slices.Concat(wrongClusters, wrongMachines, wrongPatches, wrongOperations, wrongBackups, wrongStorages, wrongReclaims,
		wrongCredentialRequests(), wrongInstallations, wrongUsers)
}

var long = strings.Repeat("a", 300)

// costly goes through 40 lists in 40 lists in 40 lists in 40 lists, whatever the object is.
var costly = func() string {
	forty := "[" + strings.Repeat("1,", 39) + "1]"
	return forty + ".map(a, " + forty + ".map(b, " + forty + ".map(c, " + forty + ".map(d, a)))).size() > 0"
}()

var wrongClusters = []wrong{
	{"a name with capitals", "TalosCluster", "metadata.name", "Prod", nil},
	{"a version without v", "TalosCluster", "spec.talosVersion", "1.14.5", nil},
	{"a version of two numbers", "TalosCluster", "spec.kubernetesVersion", "v1.36", nil},
	{"no Secret", "TalosCluster", "spec.secretsRef.name", "", nil},
	{"no namespace of the Secret", "TalosCluster", "spec.secretsRef.namespace", "", nil},
	{"a policy that isn't", "TalosCluster", "spec.secretsPolicy", "Guess", nil},
	{"no control planes", "TalosCluster", "spec.controlPlane.count", 0, nil},
	{"eleven control planes", "TalosCluster", "spec.controlPlane.count", 11, nil},
	{"no endpoint", "TalosCluster", "spec.controlPlane.endpoint.host", "", nil},
	{"an endpoint with a scheme", "TalosCluster", "spec.controlPlane.endpoint.host", "https://10.0.0.10", nil},
	{"port 70000", "TalosCluster", "spec.controlPlane.endpoint.port", 70000, nil},
	{"a pod range with host bits", "TalosCluster", "spec.network.podCIDRs.0", "10.244.0.1/16", nil},
	{"Services among the pods", "TalosCluster", "spec.network.serviceCIDRs.0", "10.244.0.0/24", nil},
	{"a DNS domain with spaces", "TalosCluster", "spec.network.dnsDomain", "my cluster", nil},
	{"a subnet that is an address", "TalosCluster", "spec.discovery.subnets.0.cidr", "10.0.0.7", nil},
	{"a subnet of half the Internet", "TalosCluster", "spec.discovery.subnets.0.cidr", "0.0.0.0/1", nil},
	{"an address that is a name", "TalosCluster", "spec.discovery.addresses.0", "node-1", nil},
	{"a scan each second", "TalosCluster", "spec.discovery.interval", "1s", nil},
	{"a drift policy that isn't", "TalosCluster", "spec.driftPolicy", "Ignore", nil},
	{"600 machines at a time", "TalosCluster", "spec.apply.maxParallel", 600, nil},
	{"a schematic of three letters", "TalosCluster", "spec.install.schematicID", "abc", nil},
	{"a registry with a scheme", "TalosCluster", "spec.install.registry", "https://factory.talos.dev", nil},
	{"a lockdown that isn't", "TalosCluster", "spec.hardening.kernelLockdown", "total", nil},
	{"an audit policy of nobody", "TalosCluster", "spec.hardening.auditPolicy", "Everything", nil},
}

var wrongMachines = []wrong{
	{"another UUID than the name", "TalosMachine", "metadata.name", "4c4c4544-0051-3610-8052-000000000000", nil},
	{"an origin that isn't", "TalosMachine", "spec.origin", "Found", nil},
	{"an address that is a name", "TalosMachine", "spec.address", "node-1", nil},
	{"adopted without an address", "TalosMachine", "spec.address", nothing{}, nil},
	{"a policy that isn't", "TalosMachine", "spec.deletionPolicy", "Burn", nil},
}

var wrongPatches = []wrong{
	{"a name with capitals", "TalosConfigPatch", "metadata.name", "Sysctls", nil},
	{"no cluster", "TalosConfigPatch", "spec.target.clusterRef.name", "", nil},
	{"a role that isn't", "TalosConfigPatch", "spec.target.role", "master", nil},
	{"a selector with a bad key", "TalosConfigPatch", "spec.target.machineSelector.matchLabels", object{"a b": "c"}, []string{"spec.target.machineSelector.matchLabels"}},
	{"a selector with a bad operator", "TalosConfigPatch", "spec.target.machineSelector", object{"matchExpressions": list{object{"key": "a", "operator": "Near"}}}, []string{"spec.target.machineSelector.matchExpressions[0].operator"}},
	{"a machine without a name", "TalosConfigPatch", "spec.target.machineNames", list{""}, []string{"spec.target.machineNames[0]"}},
	{"a negative priority", "TalosConfigPatch", "spec.priority", -1, nil},
	{"a priority beyond a million", "TalosConfigPatch", "spec.priority", 1_000_001, nil},
	{"an unknown field of the machine", "TalosConfigPatch", "spec.machine", object{"sysctl": object{}}, []string{"spec.machine.sysctl"}},
	{"an unknown field deep in the machine", "TalosConfigPatch", "spec.machine", object{"kubelet": object{"extraArg": object{}}}, []string{"spec.machine.kubelet.extraArg"}},
	{"a list where an object belongs", "TalosConfigPatch", "spec.machine.sysctls", list{"a"}, nil},
	{"an unknown field of the cluster", "TalosConfigPatch", "spec.cluster", object{"apiserver": object{}}, []string{"spec.cluster.apiserver"}},
	{"the machine's token", "TalosConfigPatch", "spec.machine.token", secretText, nil},
	{"the machine's CA key", "TalosConfigPatch", "spec.machine.ca", object{"crt": "", "key": "czNjcjN0"}, []string{"spec.machine.ca"}},
	{"the machine's role", "TalosConfigPatch", "spec.machine.type", "controlplane", nil},
	{"the install disk", "TalosConfigPatch", "spec.machine.install", object{"disk": "/dev/sda"}, []string{"spec.machine.install.disk"}},
	{"the installer", "TalosConfigPatch", "spec.machine.install", object{"image": "ghcr.io/siderolabs/installer:v1.13.0"}, []string{"spec.machine.install.image"}},
	{"kubelet's version", "TalosConfigPatch", "spec.machine.kubelet", object{"image": "ghcr.io/siderolabs/kubelet:v1.36.0"}, []string{"spec.machine.kubelet.image"}},
	{"the cluster's endpoint", "TalosConfigPatch", "spec.cluster", object{"controlPlane": object{"endpoint": "https://10.0.0.1:6443"}}, []string{"spec.cluster.controlPlane"}},
	{"the pods' network", "TalosConfigPatch", "spec.cluster", object{"network": object{"podSubnets": list{"10.1.0.0/16"}}}, []string{"spec.cluster.network.podSubnets"}},
	{"a hostname", "TalosConfigPatch", "spec.documents.0", object{"apiVersion": "v1alpha1", "kind": "HostnameConfig", "hostname": "x"}, []string{"spec.documents[0]"}},
	{"the API server, for workers", "TalosConfigPatch", "spec.cluster", object{"apiServer": object{"extraArgs": object{"event-ttl": "2h"}}}, []string{"spec.cluster.apiServer"}},
	{"a Secret's value where no field is", "TalosConfigPatch", "spec.secretValues.0.path", "/machine/nothing/here", []string{"spec.secretValues[0].path"}},
	{"a Secret's value for a number", "TalosConfigPatch", "spec.secretValues.0.path", "/machine/kubelet/registerWithFQDN", []string{"spec.secretValues[0].path"}},
	{"a Secret's value in a document that isn't there", "TalosConfigPatch", "spec.secretValues.0.path", "/documents/RegistryAuthConfig/other/password", []string{"spec.secretValues[0].path"}},
	{"a Secret's value as the cluster's key", "TalosConfigPatch", "spec.secretValues.0.path", "/machine/token", []string{"spec.secretValues[0].path"}},
	{"the cluster's secret", "TalosConfigPatch", "spec.cluster", object{"secret": secretText}, []string{"spec.cluster.secret"}},
	{"the cluster's token", "TalosConfigPatch", "spec.cluster", object{"token": secretText}, []string{"spec.cluster.token"}},
	{"a private key in a file", "TalosConfigPatch", "spec.machine", object{"files": list{object{"path": "/var/a", "op": "create", "content": "-----BEGIN EC PRIVATE KEY-----\n" + secretText}}}, []string{"spec.machine"}},
	{"a registry's password", "TalosConfigPatch", "spec.documents.1.password", secretText, nil},
	{"an unknown document", "TalosConfigPatch", "spec.documents.0.kind", "UserVolumesConfig", nil},
	{"a document without kind", "TalosConfigPatch", "spec.documents.0.kind", "", nil},
	{"an operation of a JSON patch", "TalosConfigPatch", "spec.documents.0", object{"op": "add", "path": "/machine/token", "value": secretText}, []string{"spec.documents[0]"}},
	{"a document of another version", "TalosConfigPatch", "spec.documents.0.apiVersion", "v2", nil},
	{"an unknown field of a document", "TalosConfigPatch", "spec.documents.0.provisioning.minSiz", "1GiB", nil},
	{"an unknown field of a rule for images", "TalosConfigPatch", "spec.documents.0", object{"apiVersion": "v1alpha1", "kind": "ImageVerificationConfig", "rules": list{object{"image": "registry.k8s.io/*", "denied": true}}}, []string{"spec.documents[0].rules[0].denied"}},
	{"a document twice", "TalosConfigPatch", "spec.documents.1", object{"apiVersion": "v1alpha1", "kind": "UserVolumeConfig", "name": "data", "provisioning": object{}}, nil},
	{"a secret value for nothing", "TalosConfigPatch", "spec.secretValues.0.path", "/spec/machine", nil},
	{"a secret value for a whole document", "TalosConfigPatch", "spec.secretValues.0.path", "/documents/RegistryAuthConfig", nil},
	{"a secret value of no Secret", "TalosConfigPatch", "spec.secretValues.0.secretKeyRef.name", "", nil},
	{"a secret value of no key", "TalosConfigPatch", "spec.secretValues.0.secretKeyRef.key", "a b", nil},
}

var wrongOperations = []wrong{
	{"a name with capitals", "TalosOperation", "metadata.name", "Upgrade", nil},
	{"no cluster", "TalosOperation", "spec.clusterRef.name", "", nil},
	{"nothing to do", "TalosOperation", "spec.reboot", nothing{}, []string{"spec"}},
	{"two things to do", "TalosOperation", "spec.configRollout", object{}, []string{"spec.reboot"}},
	{"three things to do", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "talosUpgrade": object{}, "kubernetesUpgrade": object{}, "reboot": object{}}, []string{"spec.kubernetesUpgrade", "spec.reboot"}},
	{"a mode that isn't", "TalosOperation", "spec.mode", "Try", nil},
	{"a reboot that isn't", "TalosOperation", "spec.reboot.mode", "Kick", nil},
	{"machines, but none", "TalosOperation", "spec.machines", object{}, nil},
	{"a machine without a name", "TalosOperation", "spec.machines.names", list{"a", ""}, []string{"spec.machines.names[1]"}},
	{"a selector with a bad value", "TalosOperation", "spec.machines.selector.matchLabels", object{"rack": "a b"}, []string{"spec.machines.selector.matchLabels"}},
	{"a Talos version without v", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "talosUpgrade": object{"version": "1.14.6"}}, []string{"spec.talosUpgrade.version"}},
	{"a schematic of three letters", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "talosUpgrade": object{"schematicID": "abc"}}, []string{"spec.talosUpgrade.schematicID"}},
	{"a Kubernetes version of words", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "kubernetesUpgrade": object{"version": "latest"}}, []string{"spec.kubernetesUpgrade.version"}},
	{"a Cilium version with v", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "ciliumUpgrade": object{"version": "v1.20.5"}}, []string{"spec.ciliumUpgrade.version"}},
	{"an Ichor version without v", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "ichorUpgrade": object{"version": "0.2.0"}}, []string{"spec.ichorUpgrade.version"}},
	{"Cilium on some machines", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "ciliumUpgrade": object{}, "machines": object{"names": list{"a"}}}, []string{"spec.machines"}},
	{"a shutdown of all without consent", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "shutdown": object{}}, []string{"spec.shutdown.consent"}},
	{"a shutdown with another's name", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "shutdown": object{"consent": "test"}}, []string{"spec.shutdown.consent"}},
	{"a restore without consent", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "etcdRestore": object{"backup": object{"name": "prod"}, "consent": ""}}, []string{"spec.etcdRestore.consent"}},
	{"a restore of no backup", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "etcdRestore": object{"backup": object{"name": ""}, "consent": "prod"}}, []string{"spec.etcdRestore.backup.name"}},
	{"an authority that isn't", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "rotateCA": object{"authority": "Root"}}, []string{"spec.rotateCA.authority"}},
	{"a key that isn't", "TalosOperation", "spec", object{"clusterRef": object{"name": "prod"}, "rotateKey": object{"key": "House"}}, []string{"spec.rotateKey.key"}},
	{"a gate without a name", "TalosOperation", "spec.gates", list{object{"name": "", "job": object{"namespace": "a", "cronJob": "b"}}}, []string{"spec.gates[0].name"}},
	{"a gate that is nothing", "TalosOperation", "spec.gates", list{object{"name": "a"}}, []string{"spec.gates[0]"}},
	{"a gate that is both", "TalosOperation", "spec.gates", list{object{"name": "a", "job": object{"namespace": "a", "cronJob": "b"}, "cel": object{"apiVersion": "v1", "kind": "Node", "name": "n", "expression": "true"}}}, []string{"spec.gates[0].job"}},
	{"two gates of one name", "TalosOperation", "spec.gates", list{object{"name": "a", "job": object{"namespace": "a", "cronJob": "b"}}, object{"name": "a", "job": object{"namespace": "a", "cronJob": "b"}}}, []string{"spec.gates[1].name"}},
	{"a gate that waits for nothing", "TalosOperation", "spec.gates", list{object{"name": "a", "timeout": "0s", "job": object{"namespace": "a", "cronJob": "b"}}}, []string{"spec.gates[0].timeout"}},
	{"an expression that doesn't parse", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "v1", "kind": "Node", "name": "n", "expression": "object.status.("}}}, []string{"spec.gates[0].cel.expression"}},
	{"an expression that is a number", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "v1", "kind": "Node", "name": "n", "expression": "1 + 1"}}}, []string{"spec.gates[0].cel.expression"}},
	{"an expression about what isn't there", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "v1", "kind": "Node", "name": "n", "expression": "subject.ready"}}}, []string{"spec.gates[0].cel.expression"}},
	{"no expression", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "v1", "kind": "Node", "name": "n", "expression": ""}}}, []string{"spec.gates[0].cel.expression"}},
	{"a gate over a Secret", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "v1", "kind": "Secret", "namespace": "a", "name": "n", "expression": "object.type == 'Opaque'"}}}, []string{"spec.gates[0].cel.kind"}},
	{"an expression that costs too much", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "v1", "kind": "Node", "name": "n", "expression": costly}}}, []string{"spec.gates[0].cel.expression"}},
	{"a gate on no kind", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "v1", "kind": "", "name": "n", "expression": "true"}}}, []string{"spec.gates[0].cel.kind"}},
	{"a gate on no version", "TalosOperation", "spec.gates", list{object{"name": "a", "cel": object{"apiVersion": "a/b/c", "kind": "A", "name": "n", "expression": "true"}}}, []string{"spec.gates[0].cel.apiVersion"}},
	{"a Job of no CronJob", "TalosOperation", "spec.gates", list{object{"name": "a", "job": object{"namespace": "a", "cronJob": ""}}}, []string{"spec.gates[0].job.cronJob"}},
	{"a Job in no namespace", "TalosOperation", "spec.gates", list{object{"name": "a", "job": object{"namespace": "", "cronJob": "b"}}}, []string{"spec.gates[0].job.namespace"}},
	{"a window of four fields", "TalosOperation", "spec.windows", list{object{"schedule": "0 2 * *", "duration": "1h"}}, []string{"spec.windows[0].schedule"}},
	{"a window that never comes", "TalosOperation", "spec.windows", list{object{"schedule": "0 0 30 2 *", "duration": "1h"}}, []string{"spec.windows[0].schedule"}},
	{"a window with its zone in it", "TalosOperation", "spec.windows", list{object{"schedule": "TZ=Europe/Berlin 0 2 * * *", "duration": "1h"}}, []string{"spec.windows[0].schedule"}},
	{"a window in no zone", "TalosOperation", "spec.windows", list{object{"schedule": "0 2 * * *", "duration": "1h", "timeZone": "Europe/Atlantis"}}, []string{"spec.windows[0].timeZone"}},
	{"a window of no time", "TalosOperation", "spec.windows", list{object{"schedule": "0 2 * * *", "duration": "0s"}}, []string{"spec.windows[0].duration"}},
	{"a window of a month", "TalosOperation", "spec.windows", list{object{"schedule": "0 2 * * *", "duration": "720h"}}, []string{"spec.windows[0].duration"}},
	{"a drain without time", "TalosOperation", "spec.drain.timeout", "0s", nil},
	{"a wait that is negative", "TalosOperation", "spec.drain.skipWaitForDeleteTimeout", "-1s", nil},
	{"many faults at once", "TalosOperation", "spec", object{"clusterRef": object{"name": "A"}, "reboot": object{"mode": "x"}, "mode": "y", "drain": object{"timeout": "0s"}}, []string{"spec.clusterRef.name", "spec.reboot.mode", "spec.mode", "spec.drain.timeout"}},
}

var wrongBackups = []wrong{
	{"a name with capitals", "TalosEtcdBackup", "metadata.name", "Prod", nil},
	{"no cluster", "TalosEtcdBackup", "spec.clusterRef.name", "", nil},
	{"no storage", "TalosEtcdBackup", "spec.storageRef.name", "", nil},
	{"words for a schedule", "TalosEtcdBackup", "spec.schedule", "every day", nil},
	{"a macro", "TalosEtcdBackup", "spec.schedule", "@daily", nil},
	{"six fields", "TalosEtcdBackup", "spec.schedule", "0 0 0 * * *", nil},
	{"minute 60", "TalosEtcdBackup", "spec.schedule", "60 0 * * *", nil},
	{"31 February", "TalosEtcdBackup", "spec.schedule", "0 0 31 2 *", nil},
	{"no such zone", "TalosEtcdBackup", "spec.timeZone", "Mars/Olympus", nil},
	{"the server's zone", "TalosEtcdBackup", "spec.timeZone", "Local", nil},
	{"keep nothing", "TalosEtcdBackup", "spec.retention.count", -1, nil},
	{"keep too much", "TalosEtcdBackup", "spec.retention.count", 5000, nil},
	{"keep for a minute", "TalosEtcdBackup", "spec.retention.maxAge", "1m", nil},
	{"a request of a novel", "TalosEtcdBackup", "spec.backupRequest", long, nil},
	{"no encryption", "TalosEtcdBackup", "spec.encryption", object{}, nil},
	{"no recipient", "TalosEtcdBackup", "spec.encryption.age.recipients", list{}, nil},
	{"a recipient that is a word", "TalosEtcdBackup", "spec.encryption.age.recipients.0", "alice", nil},
	{"a recipient with a typing error", "TalosEtcdBackup", "spec.encryption.age.recipients.0", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8x", nil},
	{"an SSH key", "TalosEtcdBackup", "spec.encryption.age.recipients.0", "ssh-ed25519 AAAA", nil},
	{"a private key", "TalosEtcdBackup", "spec.encryption.age.recipients.0", "AGE-SECRET-KEY-1" + strings.ToUpper(secretText), nil},
}

var wrongStorages = []wrong{
	{"a name with capitals", "TalosStorage", "metadata.name", "MinIO", nil},
	{"no endpoint", "TalosStorage", "spec.endpoint", "", nil},
	{"an endpoint without a scheme", "TalosStorage", "spec.endpoint", "s3.example.org:9000", nil},
	{"plain HTTP", "TalosStorage", "spec.endpoint", "http://s3.example.org", nil},
	{"an endpoint without a host", "TalosStorage", "spec.endpoint", "https://:9000", nil},
	{"an endpoint with a path", "TalosStorage", "spec.endpoint", "https://s3.example.org/bucket", nil},
	{"an endpoint with a query", "TalosStorage", "spec.endpoint", "https://s3.example.org?a=b", nil},
	{"an endpoint with credentials", "TalosStorage", "spec.endpoint", "https://me:" + secretText + "@s3.example.org", nil},
	{"an endpoint that is no URL", "TalosStorage", "spec.endpoint", "https://[::1", nil},
	{"no bucket", "TalosStorage", "spec.bucket", "", nil},
	{"a bucket with capitals", "TalosStorage", "spec.bucket", "Backups", nil},
	{"a bucket of two letters", "TalosStorage", "spec.bucket", "ab", nil},
	{"a prefix that begins with a slash", "TalosStorage", "spec.prefix", "/ichor", nil},
	{"a prefix with an empty part", "TalosStorage", "spec.prefix", "ichor//prod", nil},
	{"a region of two words", "TalosStorage", "spec.region", "eu west", nil},
	{"an addressing that isn't", "TalosStorage", "spec.addressing", "Header", nil},
	{"checksums that aren't", "TalosStorage", "spec.checksums", "Never", nil},
	{"no credentials", "TalosStorage", "spec.credentialsSecretRef.name", "", nil},
	{"a CA that is no PEM", "TalosStorage", "spec.caBundle", "hello", nil},
	{"a CA that is a private key", "TalosStorage", "spec.caBundle", "-----BEGIN PRIVATE KEY-----\n" + secretText, nil},
	{"a request of a novel", "TalosStorage", "spec.checkRequest", long, nil},
}

var wrongReclaims = []wrong{
	{"no address", "MachineReclaim", "spec.address", "", nil},
	{"an address that is a name", "MachineReclaim", "spec.address", "node-1", nil},
	{"every address", "MachineReclaim", "spec.address", "0.0.0.0", nil},
	{"an address with a port", "MachineReclaim", "spec.address", "10.0.0.7:50000", nil},
	{"no UUID", "MachineReclaim", "spec.uuid", "", nil},
	{"a UUID that is a word", "MachineReclaim", "spec.uuid", "yes", nil},
	{"a UUID of zeros", "MachineReclaim", "spec.uuid", "00000000-0000-0000-0000-000000000000", nil},
	{"a UUID of many boards", "MachineReclaim", "spec.uuid", "03000200-0400-0500-0006-000700080009", nil},
	{"no talosconfig", "MachineReclaim", "spec.talosconfigSecretRef.name", "", nil},
	{"a disk without a name", "MachineReclaim", "spec.wipeDisks.0", object{}, nil},
	{"a disk twice", "MachineReclaim", "spec.wipeDisks", list{object{"serial": "S2"}, object{"serial": "S2"}}, []string{"spec.wipeDisks[1]"}},
}

func wrongCredentialRequests() []wrong {
	weakRSA, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		panic(err) // the table can't be made without it
	}
	weakCurve, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		panic(err)
	}
	good, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	signed := csr(good)
	forged := slices.Clone(signed)
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	return []wrong{
		{"no cluster", "TalosCredentialRequest", "spec.clusterRef.name", "", nil},
		{"a role that isn't", "TalosCredentialRequest", "spec.role", "os:god", nil},
		{"a second", "TalosCredentialRequest", "spec.ttl", "1s", nil},
		{"two days", "TalosCredentialRequest", "spec.ttl", "48h", nil},
		{"two hours as admin", "TalosCredentialRequest", "spec.role", "os:admin", []string{"spec.ttl"}},
		{"no request", "TalosCredentialRequest", "spec.request", "", nil},
		{"a request that is no PEM", "TalosCredentialRequest", "spec.request", []byte("hello"), nil},
		{"a certificate", "TalosCredentialRequest", "spec.request", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}), nil},
		{"a private key", "TalosCredentialRequest", "spec.request", []byte("-----BEGIN EC PRIVATE KEY-----\n" + secretText), nil},
		{"a request with something behind it", "TalosCredentialRequest", "spec.request", append(slices.Clone(signed), []byte("hello")...), nil},
		{"a request that another key signed", "TalosCredentialRequest", "spec.request", pem.EncodeToMemory(block), nil},
		{"an RSA key of 1024 bits", "TalosCredentialRequest", "spec.request", csr(weakRSA), nil},
		{"an ECDSA key of 224 bits", "TalosCredentialRequest", "spec.request", csr(weakCurve), nil},
	}
}

func csr(key any) []byte {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		panic(err) // the table can't be made without it
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

var wrongInstallations = []wrong{
	{"a second one", "IchorInstallation", "metadata.name", "other", nil},
	{"a version without v", "IchorInstallation", "spec.version", "0.1.0", nil},
	{"no controller", "IchorInstallation", "spec.replicas.controller", 0, nil},
	{"no API server", "IchorInstallation", "spec.replicas.apiServer", 0, nil},
	{"fewer than no page", "IchorInstallation", "spec.replicas.ui", -1, nil},
	{"ten API servers", "IchorInstallation", "spec.replicas.apiServer", 10, nil},
	{"a registry with a scheme", "IchorInstallation", "spec.images.registry", "https://example.org", nil},
	{"a pull secret without a name", "IchorInstallation", "spec.images.pullSecretRef", object{"name": ""}, []string{"spec.images.pullSecretRef.name"}},
	{"an exposure that isn't", "IchorInstallation", "spec.ui.exposure", "Billboard", nil},
	{"an Ingress without a host", "IchorInstallation", "spec.ui.host", "", nil},
	{"a host with a scheme", "IchorInstallation", "spec.ui.host", "https://ichor.example.org", nil},
	{"a certificate without a name", "IchorInstallation", "spec.ui.tlsSecretRef.name", "", nil},
	{"a Gateway for an Ingress", "IchorInstallation", "spec.ui.gatewayRef", object{"namespace": "a", "name": "b"}, nil},
	{"a route to no Gateway", "IchorInstallation", "spec.ui.exposure", "Gateway", []string{"spec.ui.gatewayRef"}},
	{"an Ingress class for a load balancer", "IchorInstallation", "spec.ui", object{"exposure": "LoadBalancer", "ingressClassName": "nginx"}, []string{"spec.ui.ingressClassName"}},
}

var wrongUsers = []wrong{
	{"a name with a colon", "IchorUser", "metadata.name", "system:admin", nil},
	{"a name with capitals", "IchorUser", "metadata.name", "Alice", nil},
	{"no role", "IchorUser", "spec.role", "", nil},
	{"a role in small letters", "IchorUser", "spec.role", "admin", nil},
	{"a novel for a name", "IchorUser", "spec.displayName", long, nil},
	{"a name that rings", "IchorUser", "spec.displayName", "Alice\a", nil},
}
