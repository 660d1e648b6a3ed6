// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"maesh.dev/ichor/test/hollow/kubernetes/connection"
)

const (
	// statusEvery is a kubelet's own default: the longest silence of an unchanged status.
	statusEvery = 5 * time.Minute

	// retryFirst and retryLongest pace attempts while the API server can't be reached.
	retryFirst   = 500 * time.Millisecond
	retryLongest = 5 * time.Second

	// stepTimeout bounds one round of work against the API server, farewellTimeout the last word of a node that stops.
	stepTimeout     = 15 * time.Second
	farewellTimeout = 2 * time.Second
)

// Options describe one kubelet for one life of its process.
type Options struct {
	// NodeName is the Node's name; Address its InternalIP.
	NodeName string
	Address  netip.Addr
	// Server is the API server's URL and CAs the PEM bundle its certificate is verified with.
	Server string
	CAs    []byte
	// Token is the cluster's bootstrap token, id.secret.
	Token string
	// Dir stands for /var/lib/kubelet; the client certificate in it survives reboots.
	Dir string
	// Facts are what the node says of itself.
	Facts Facts
	// NoCNI keeps the node NotReady, as one whose network plugin was never installed.
	NoCNI bool
	// ControlPlane makes the node register with the taint that keeps pods away, unless Schedulable.
	ControlPlane, Schedulable bool
	// ServingCertificate makes the kubelet ask the cluster for its serving certificate (rotate-server-certificates).
	ServingCertificate bool
	// Pods makes the kubelet run the pods of its Node; their addresses are of PodNetwork.
	Pods       bool
	PodNetwork netip.Prefix
	// Admin, if set, applies what the configuration wants of the Node. A worker has no such identity: it uses the
	// kubelet's, and NodeRestriction refuses what a node must not change on itself.
	Admin *connection.Connection
	// LeaseSeconds is the length of the Lease (nodeLeaseDurationSeconds); 0 is the kubelet's default.
	LeaseSeconds int32
	// LeaseEvery overrides the renewal of the Lease.
	LeaseEvery time.Duration
	Logger     *slog.Logger
	// Changed is called after each change of the state.
	Changed func(State)
}

func (o Options) withDefaults() Options {
	if o.LeaseSeconds == 0 {
		o.LeaseSeconds = leaseSeconds
	}

	if o.LeaseEvery == 0 {
		o.LeaseEvery = time.Duration(o.LeaseSeconds) * time.Second / leaseFraction
	}

	return o
}

// State is what the kubelet knows of its Node.
type State struct {
	// Registered tells that the Node object exists, Ready that its Ready condition is true.
	Registered, Ready bool
}

// Kubelet is a running kubelet.
type Kubelet struct {
	options Options
	cancel  context.CancelFunc
	done    chan struct{}
	kick    chan struct{}

	mu     sync.Mutex
	wanted Wanted
	pods   []StaticPod

	// What follows belongs to the goroutine.
	certificate certificate
	connection  *connection.Connection
	client      kubernetes.Interface
	admin       kubernetes.Interface
	lease       leaseHolder
	state       State
	reported    time.Time
	rotation    *rotation
	serving     serving
	applyError  string
	deleted     bool
}

// Start begins the kubelet's life; it returns at once.
func Start(options Options) *Kubelet {
	options = options.withDefaults()

	ctx, cancel := context.WithCancel(context.Background())
	k := &Kubelet{options: options, cancel: cancel, done: make(chan struct{}), kick: make(chan struct{}, 1), lease: leaseHolder{seconds: options.LeaseSeconds}}

	go k.run(ctx)

	return k
}

// Stop ends the kubelet. In order, the node says that it is going down; as in a power cut, it says nothing.
func (k *Kubelet) Stop(ctx context.Context, kill bool) {
	k.cancel()
	<-k.done

	if !kill && k.client != nil && k.state.Registered {
		k.sayFarewell(ctx)
	}

	if k.connection != nil {
		k.connection.Close()
	}
}

// SetWanted replaces what the machine configuration wants of the Node.
func (k *Kubelet) SetWanted(wanted Wanted) {
	k.mu.Lock()
	k.wanted = wanted
	k.mu.Unlock()

	k.wake()
}

// SetStaticPods replaces the static pods to mirror.
func (k *Kubelet) SetStaticPods(pods []StaticPod) {
	k.mu.Lock()
	k.pods = pods
	k.mu.Unlock()

	k.wake()
}

func (k *Kubelet) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// desired returns what to apply and to mirror.
func (k *Kubelet) desired() (Wanted, []StaticPod) {
	k.mu.Lock()
	defer k.mu.Unlock()

	return k.wanted, k.pods
}

func (k *Kubelet) pkiDir() string { return filepath.Join(k.options.Dir, "pki") }

// run works round after round until ctx ends. A failed round is repeated soon, a good one after the lease's period.
func (k *Kubelet) run(ctx context.Context) {
	defer close(k.done)

	var runner sync.WaitGroup
	defer runner.Wait()

	runs := !k.options.Pods

	pause := retryFirst
	complaint := ""

	for {
		stepCtx, cancel := context.WithTimeout(ctx, stepTimeout)
		err := k.step(stepCtx)

		cancel()

		var next time.Duration

		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			next, pause, complaint = k.options.LeaseEvery, retryFirst, ""

			if !runs && k.state.Registered {
				runs = true
				k.startPods(ctx, &runner)
			}
		default:
			next, pause = pause, min(2*pause, retryLongest)

			// Neither the same failure again nor a conflict, which the next round resolves, is news.
			if text := err.Error(); text != complaint && !apierrors.IsConflict(err) {
				complaint = text
				k.options.Logger.Warn("kubelet", "node", k.options.NodeName, "error", err)
			}
		}

		// Spread the nodes of one process over time.
		timer := time.NewTimer(next - time.Duration(rand.Int64N(int64(next)/10+1)))

		select {
		case <-ctx.Done():
			timer.Stop()

			return
		case <-timer.C:
		case <-k.kick:
			timer.Stop()
		}
	}
}

// step is one round: credentials, registration, heartbeat, and what the configuration and the static pods want.
func (k *Kubelet) step(ctx context.Context) error {
	if k.deleted {
		return nil
	}

	ready, err := k.haveCredentials(ctx)
	if err != nil || !ready {
		return err
	}

	if !k.state.Registered {
		if err = k.register(ctx); err != nil {
			return err
		}
	}

	if err = k.lease.renew(ctx, k.client, k.options.NodeName); err != nil {
		return err
	}

	node, err := k.report(ctx)
	if errors.Is(err, errDeleted) {
		return nil
	}

	if err != nil {
		return err
	}

	wanted, pods := k.desired()

	if err = k.apply(ctx, node, wanted); err != nil {
		return err
	}

	if err = k.mirror(ctx, node, pods); err != nil {
		return err
	}

	return errors.Join(k.rotate(ctx), k.rotateServing(ctx))
}

// haveCredentials makes the client. It isn't ready while a certificate request waits to be signed.
func (k *Kubelet) haveCredentials(ctx context.Context) (ready bool, err error) {
	if k.client != nil {
		return true, nil
	}

	if err = k.openAdmin(); err != nil {
		return false, err
	}

	found, err := k.loadCertificate()
	if err != nil {
		return false, err
	}

	if !found {
		if found, err = k.bootstrap(ctx); err != nil || !found {
			return false, err
		}
	}

	conn, err := connection.New(k.options.Server, k.options.CAs, "kubelet", connection.Identity{Certificate: k.certificate.get})
	if err != nil {
		return false, err
	}

	client, err := kubernetes.NewForConfigAndClient(conn.Config, conn.HTTP)
	if err != nil {
		return false, fmt.Errorf("make client of node %s: %w", k.options.NodeName, err)
	}

	k.connection, k.client = conn, client

	return true, nil
}

func (k *Kubelet) openAdmin() error {
	if k.options.Admin == nil || k.admin != nil {
		return nil
	}

	admin, err := kubernetes.NewForConfigAndClient(k.options.Admin.Config, k.options.Admin.HTTP)
	if err != nil {
		return fmt.Errorf("make administrator's client on node %s: %w", k.options.NodeName, err)
	}

	k.admin = admin

	return nil
}

func (k *Kubelet) setState(state State) {
	if state == k.state {
		return
	}

	k.state = state
	k.options.Changed(state)
}
