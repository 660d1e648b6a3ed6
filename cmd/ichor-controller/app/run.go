// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	coreinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/transport"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	clustercontroller "maesh.dev/ichor/controllers/cluster"
	configpatchcontroller "maesh.dev/ichor/controllers/configpatch"
	"maesh.dev/ichor/controllers/configwatch"
	discoverycontroller "maesh.dev/ichor/controllers/discovery"
	"maesh.dev/ichor/controllers/drain"
	"maesh.dev/ichor/controllers/kubeletcertificate"
	machinecontroller "maesh.dev/ichor/controllers/machine"
	"maesh.dev/ichor/controllers/nodestream"
	operationcontroller "maesh.dev/ichor/controllers/operation"
	"maesh.dev/ichor/controllers/operation/gates"
	"maesh.dev/ichor/controllers/operation/snapshot"
	"maesh.dev/ichor/controllers/reclaim"
	"maesh.dev/ichor/controllers/servingcertificate"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/pkg/client/clientset/versioned/scheme"
	ichorclient "maesh.dev/ichor/pkg/client/clientset/versioned/typed/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/informers/externalversions"
	"maesh.dev/ichor/pkg/kube"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

// component is the name in events, the Lease and the user agent.
const component = "ichor-controller"

// endTimeout bounds the orderly end: an apply that was begun, and the status that goes with it.
const endTimeout = 45 * time.Second

// Edges are how the controller reaches what is around it. What is left out is as in production.
type Edges struct {
	// Transport is put around the connection to the Kubernetes API, for instance to trace requests.
	Transport transport.WrapperFunc
	// Dialer and Prober reach the machines.
	Dialer talos.Dialer
	Prober talos.Prober
}

// Run works until ctx ends, and then finishes what it is doing. Losing the lead is an error: the process ends, and
// whoever started it starts it again.
func Run(ctx context.Context, options Options) error { return RunWith(ctx, options, Edges{}) }

// RunWith is Run with edges of the caller's.
func RunWith(ctx context.Context, options Options, edges Edges) error {
	config, err := kube.OwnCluster(options.Kubeconfig)
	if err != nil {
		return err
	}
	config = rest.AddUserAgent(config, component)
	config.QPS, config.Burst = options.QPS, options.Burst
	if edges.Transport != nil {
		config.Wrap(edges.Transport)
	}
	p, err := assemble(config, options, edges)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

// program is the parts of a running controller.
type program struct {
	options     Options
	kubernetes  kubernetes.Interface
	clusters    ichorclient.TalosClusterInterface
	ichor       externalversions.SharedInformerFactory
	core        coreinformers.SharedInformerFactory
	requests    coreinformers.SharedInformerFactory
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	parts       []part
	streams     streamServer
	synced      []cache.InformerSynced
}

// part is something that works while this process leads.
type part struct {
	name string
	run  func(context.Context) error
}

func assemble(config *rest.Config, options Options, edges Edges) (*program, error) {
	ichor, err := versioned.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for Ichor's API: %w", err)
	}
	kubernetes, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the Kubernetes API: %w", err)
	}
	registration, err := aggregator.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for APIServices: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for objects of any kind: %w", err)
	}
	if edges.Dialer == nil {
		edges.Dialer = talos.NewDialer(talos.DialOptions{})
	}
	if edges.Prober == nil {
		edges.Prober = talos.NewProber(talos.ProbeOptions{})
	}
	return assembleWith(clients{ichor, kubernetes, registration, objects, kube.APIServers{Config: config}}, edges.Dialer, edges.Prober, options)
}

// clients are those of the APIs that the controller uses.
type clients struct {
	ichor      versioned.Interface
	kubernetes kubernetes.Interface
	aggregator aggregator.Interface
	// objects reads objects of any kind.
	objects dynamic.Interface
	// apiServers are asked one by one.
	apiServers operationcontroller.APIServers
}

func assembleWith(clients clients, dialer talos.Dialer, prober talos.Prober, options Options) (*program, error) {
	ichor, kubernetes := clients.ichor, clients.kubernetes
	broadcaster := record.NewBroadcaster()
	p := &program{
		options:    options,
		kubernetes: kubernetes,
		clusters:   ichor.IchorV1alpha1().TalosClusters(),
		// What nobody here reads isn't kept in memory: with thousands of machines it is most of it.
		ichor:       externalversions.NewSharedInformerFactoryWithOptions(ichor, 0, externalversions.WithTransform(kube.TrimManagedFields)),
		core:        coreinformers.NewSharedInformerFactoryWithOptions(kubernetes, 0, coreinformers.WithTransform(kube.TrimNode)),
		requests:    kubeletRequests(kubernetes),
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: component}),
	}
	machines, clusters := p.ichor.Ichor().V1alpha1().TalosMachines(), p.ichor.Ichor().V1alpha1().TalosClusters()
	patches, nodes := p.ichor.Ichor().V1alpha1().TalosConfigPatches(), p.core.Core().V1().Nodes()
	operations := p.ichor.Ichor().V1alpha1().TalosOperations()
	store := secretsbundle.Store{Secrets: kubernetes.CoreV1()}
	credentials := secretsbundle.NewProvider(store, clusters.Lister().Get, clock.RealClock{})
	p.synced = []cache.InformerSynced{
		machines.Informer().HasSynced, clusters.Informer().HasSynced, patches.Informer().HasSynced, nodes.Informer().HasSynced, operations.Informer().HasSynced,
	}

	snapshots := operationcontroller.EncryptedSnapshots{Keeper: &snapshot.Keeper{Directory: options.SnapshotDirectory}, Bundles: store}
	machine, err := machinecontroller.New(machinecontroller.Config{
		Client: ichor, Machines: machines, Clusters: clusters, Patches: patches, Nodes: nodes, NodeClient: kubernetes.CoreV1(), Drainer: drain.Drainer{Client: kubernetes}, Snapshots: snapshots,
		Bundles: &secretsbundle.Recent{Store: store, Clock: clock.RealClock{}}, Values: machinecontroller.SecretValues{Secrets: kubernetes.CoreV1()}, Credentials: credentials, Dialer: dialer, Prober: prober, Recorder: p.recorder,
	})
	if err != nil {
		return nil, err
	}
	configurations, err := configwatch.New(configwatch.Config{Machines: machines, Credentials: credentials, Dialer: dialer, Changed: machine.RunsAnother})
	if err != nil {
		return nil, err
	}
	cluster, err := clustercontroller.New(clustercontroller.Config{
		Client: ichor, Available: func(ctx context.Context) error { return kube.Ready(ctx, kubernetes) }, Machines: machines, Clusters: clusters,
		Store: store, Credentials: credentials, Dialer: dialer, Recorder: p.recorder,
		Nodes: kubernetes.CoreV1(), Cordoner: drain.Drainer{Client: kubernetes},
	})
	if err != nil {
		return nil, err
	}
	configpatch, err := configpatchcontroller.New(configpatchcontroller.Config{Client: ichor, Patches: patches, Machines: machines})
	if err != nil {
		return nil, err
	}
	discovery, err := discoverycontroller.New(discoverycontroller.Config{
		Client: ichor, Machines: machines, Clusters: clusters, Dialer: dialer, Prober: prober, Credentials: credentials, Recorder: p.recorder,
		Options: discoverycontroller.Options{Concurrency: options.ScanConcurrency, Rate: rate.Limit(options.ScanRate)},
	})
	if err != nil {
		return nil, err
	}
	kubelets, err := kubeletcertificate.New(kubeletcertificate.Config{
		Requests: p.requests.Certificates().V1().CertificateSigningRequests(), Client: kubernetes.CertificatesV1(),
		Machines: machines, Clusters: clusters, Recorder: p.recorder,
	})
	if err != nil {
		return nil, err
	}
	operation, err := operationcontroller.New(operationcontroller.Config{
		Client: ichor, Operations: operations, Machines: machines, Clusters: clusters, Patches: patches, Nodes: kubernetes.CoreV1(), Pods: kubernetes.CoreV1(), APIServers: clients.apiServers,
		Credentials: credentials, Dialer: dialer, Stager: machine, Drainer: drain.Drainer{Client: kubernetes}, Gates: gates.Checker{Kubernetes: kubernetes, Objects: clients.objects},
		Snapshots: snapshots, Recorder: p.recorder,
	})
	if err != nil {
		return nil, err
	}
	reclaims, err := reclaim.New(reclaim.Config{
		Client: ichor, Reclaims: p.ichor.Ichor().V1alpha1().MachineReclaims(), Secrets: kubernetes.CoreV1(), Dialer: dialer, Prober: prober, Recorder: p.recorder,
	})
	if err != nil {
		return nil, err
	}
	reader := secretsbundle.NewProviderAs(role.Reader, store, clusters.Lister().Get, clock.RealClock{})
	logs, peer := nodestream.NewHandler(ichor.IchorV1alpha1(), reader, dialer), &servingcertificate.Peer{Secrets: kubernetes.CoreV1(), Clock: clock.RealClock{}}
	p.streams = func(ctx context.Context, listener net.Listener) error {
		return nodestream.Serve(ctx, listener, peer.ServerConfig(), logs)
	}
	p.parts = []part{
		{"discovery", func(ctx context.Context) error { return discovery.Run(ctx, options.ClusterWorkers) }},
		{"machines", func(ctx context.Context) error { return machine.Run(ctx, options.MachineWorkers) }},
		{"running configurations", configurations.Run},
		{"patches", configpatch.Run},
		{"operations", func(ctx context.Context) error { return operation.Run(ctx, options.ClusterWorkers) }},
		{"reclaims", func(ctx context.Context) error { return reclaims.Run(ctx, options.ClusterWorkers) }},
		{"clusters", func(ctx context.Context) error { return cluster.Run(ctx, options.ClusterWorkers) }},
		{"kubelet certificates", kubelets.Run},
	}
	if options.ServingCertificates {
		certificates, err := servingcertificate.New(servingcertificate.Config{
			Kubernetes: kubernetes, Aggregator: clients.aggregator, Recorder: p.recorder, Settings: options.ServingCertificate,
		})
		if err != nil {
			return nil, err
		}
		p.parts = append(p.parts, part{"serving certificate", certificates.Run})
	}
	return p, nil
}

// kubeletRequests caches the requests of kubelets for serving certificates, and no others.
func kubeletRequests(kubernetes kubernetes.Interface) coreinformers.SharedInformerFactory {
	return coreinformers.NewSharedInformerFactoryWithOptions(kubernetes, 0, coreinformers.WithTransform(kube.TrimManagedFields),
		coreinformers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector("spec.signerName", certificatesv1.KubeletServingSignerName).String()
		}))
}

// run starts everything and ends it in the opposite order: the parts first, then the lead is given back, then the caches.
func (p *program) run(ctx context.Context) error {
	health, err := listen(p.options.HealthAddress, p.ready, p.options.Profiling)
	if err != nil {
		return err
	}
	defer health.close()
	endStreams, err := p.beginStreams(ctx)
	if err != nil {
		return err
	}
	defer endStreams()
	sink := p.broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: p.kubernetes.CoreV1().Events("")})
	defer func() {
		sink.Stop()
		p.broadcaster.Shutdown()
	}()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	starting := make(chan struct{})
	defer func() {
		stopWatching()
		<-starting
		p.ichor.Shutdown()
		p.core.Shutdown()
		p.requests.Shutdown()
	}()
	p.core.Start(watching.Done())
	p.requests.Start(watching.Done())
	go func() {
		defer close(starting)
		p.startIchor(watching)
	}()
	defer p.release()
	if !p.options.LeaderElect {
		return p.work(ctx)
	}
	return p.lead(ctx)
}

// lookForAPI is the time between two looks whether Ichor's API is there.
const lookForAPI = 500 * time.Millisecond

// startIchor starts the caches of Ichor's objects once their API is there. It may not be yet: ichor-apiserver waits for
// the certificate that this controller issues. Caches that were started before would come minutes later than the API,
// because they wait longer after each attempt.
func (p *program) startIchor(ctx context.Context) {
	err := wait.PollUntilContextCancel(ctx, lookForAPI, true, func(ctx context.Context) (bool, error) {
		_, err := p.clusters.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil, nil
	})
	if err == nil {
		p.ichor.Start(ctx.Done())
	}
}

func (p *program) ready() error {
	for _, synced := range p.synced {
		if !synced() {
			return errors.New("the caches are being filled")
		}
	}
	return nil
}

// work runs the parts until ctx ends or one of them fails.
func (p *program) work(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, each := range p.parts {
		group.Go(func() error {
			if err := each.run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", each.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// release ends the queues of parts that may never have worked: running under a context that is over does that.
func (p *program) release() {
	over, end := context.WithCancel(context.Background())
	end()
	// That they didn't begin to work is what is meant.
	_ = p.work(over)
}

// identity tells replicas apart in the Lease.
func identity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name this replica: %w", err)
	}
	return fmt.Sprintf("%s_%d_%d", host, os.Getpid(), time.Now().UnixNano()), nil
}
