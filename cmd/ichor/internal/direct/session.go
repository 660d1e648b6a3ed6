// SPDX-License-Identifier: Apache-2.0

package direct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/role"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/prompt"
	"maesh.dev/ichor/pkg/secretsbundle"
	"maesh.dev/ichor/pkg/talos"
)

const (
	// credentialsTTL is how long the certificates live that are made for one command. They stay in memory.
	credentialsTTL = 15 * time.Minute
	// clientName is the name of the user without groups who asks the Kubernetes API whether it is ready.
	clientName = "ichor-direct"
	// lookupTimeout bounds finding the addresses of a name.
	lookupTimeout = 5 * time.Second
	// maxIdentity bounds the identity file.
	maxIdentity = 1 << 20
)

// Session is a direct look at one cluster: its bundle, and where its machines may be.
type Session struct {
	// Invocation is how the program was called, up to the command.
	Invocation string

	bundle    *secretsbundle.Bundle
	addresses []netip.Addr
	server    string // of the kubeconfig; empty if there is none
	dialer    talos.Dialer
	prober    talos.Prober
	now       func() time.Time
}

// Open reads the bundle and finds the addresses. Nothing is connected yet.
func Open(ctx context.Context, env *cli.Env, options *Options) (*Session, error) {
	s := &Session{Invocation: options.invocation(env), dialer: env.Dialer, prober: env.Prober, now: env.Now}
	if s.dialer == nil {
		s.dialer = talos.NewDialer(talos.DialOptions{ConnectTimeout: nodeTimeout, ReadTimeout: nodeTimeout})
	}
	if s.prober == nil {
		s.prober = talos.NewProber(talos.ProbeOptions{})
	}
	s.server = kubeconfigServer(env)
	var err error
	if s.addresses, err = addressesOf(ctx, options.Nodes, s.server); err != nil {
		return nil, err
	}
	s.bundle, err = readBundle(ctx, env, options)
	return s, err
}

func readBundle(ctx context.Context, env *cli.Env, options *Options) (*secretsbundle.Bundle, error) {
	keys := secretsbundle.Keys{}
	if options.Identity != "" {
		text, err := readLimited(options.Identity)
		if err != nil {
			return nil, fmt.Errorf("read the age identity: %w", err)
		}
		keys.Identities = text
	}
	if env.CanAsk() && options.Bundle != "-" {
		keys.Passphrase = func() (string, error) {
			text, err := prompt.Secret(ctx, env.In, env.ErrOut, "Passphrase of "+options.Bundle)
			if errors.Is(err, prompt.ErrAborted) {
				err = cli.Cancelled()
			}
			return text, err
		}
	}
	if options.Bundle == "-" {
		bundle, _, err := secretsbundle.Read(env.In, keys)
		return bundle, explainLocked(err)
	}
	file, err := secretsbundle.ReadFile(options.Bundle, keys)
	if err != nil {
		return nil, explainLocked(err)
	}
	if file.Exposed {
		env.Infof("warning: others can read %s, and it holds the keys of the whole cluster: chmod 600 %s", options.Bundle, quote(options.Bundle))
	}
	return file.Bundle, nil
}

// explainLocked adds what to do about a bundle that doesn't open.
func explainLocked(err error) error {
	if errors.Is(err, secretsbundle.ErrLocked) {
		return fmt.Errorf("%w; name an age identity with --identity FILE, or type the passphrase at a terminal", err)
	}
	return err
}

func readLimited(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // read only
	text, err := io.ReadAll(io.LimitReader(file, maxIdentity+1))
	if err == nil && len(text) > maxIdentity {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxIdentity)
	}
	return bytes.TrimSpace(text), err
}

// kubeconfigServer is where the kubeconfig says that the Kubernetes API is; empty if there is no kubeconfig that does.
func kubeconfigServer(env *cli.Env) string {
	config, err := env.RESTConfig()
	if err != nil {
		return ""
	}
	parsed, err := url.Parse(config.Host)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return ""
	}
	return "https://" + parsed.Host
}

// addressesOf finds the addresses of the named machines or, where none is named, of the kubeconfig's server: the
// endpoint of a cluster is often one of its control planes, or a virtual address of them.
func addressesOf(ctx context.Context, nodes []string, server string) ([]netip.Addr, error) {
	if len(nodes) == 0 {
		parsed, err := url.Parse(server)
		if server == "" || err != nil {
			return nil, cli.Usagef("no machine to ask: name control planes with --nodes ADDRESS,…; there is no kubeconfig whose server could be one")
		}
		nodes = []string{parsed.Hostname()}
	}
	if len(nodes) > maxNodes {
		return nil, cli.Usagef("--nodes names %d machines, at most %d are asked; control planes matter most", len(nodes), maxNodes)
	}
	var addresses []netip.Addr
	for _, node := range nodes {
		found, err := addressOf(ctx, node)
		if err != nil {
			return nil, err
		}
		for _, address := range found {
			if !slices.Contains(addresses, address) && len(addresses) < maxNodes {
				addresses = append(addresses, address)
			}
		}
	}
	return addresses, nil
}

func addressOf(ctx context.Context, node string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(node); err == nil {
		return []netip.Addr{address.Unmap()}, nil
	}
	if _, _, err := net.SplitHostPort(node); err == nil {
		return nil, cli.Usagef("machine %q: an address or a name without a port; the Talos API has always port %d", node, talos.Port)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", node)
	if err != nil {
		return nil, fmt.Errorf("find the address of machine %q: %w; name it by its address", node, err)
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, nil
}

// Look asks everybody, and says what is lost and what to do.
func (s *Session) Look(ctx context.Context) (*Report, error) {
	// os:reader may read the state of a machine and of its etcd, and nothing secret.
	credentials, err := s.bundle.Credentials(s.now(), role.Reader, credentialsTTL)
	if err != nil {
		return nil, err
	}
	client, err := s.bundle.KubernetesClient(s.now(), clientName, credentialsTTL)
	if err != nil {
		return nil, err
	}
	looker := &Looker{Dialer: s.dialer, Prober: s.prober, Credentials: credentials}
	views := looker.Look(ctx, s.addresses)
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	apis, err := AskKubernetes(ctx, views, s.server, client)
	if err != nil {
		return nil, err
	}
	report := ReportOf(views, apis)
	report.Lost, report.Next = Diagnose(report, s.Invocation)
	return report, nil
}

// Failed is how a look ends the program: nil if a machine of the cluster answered.
func (r *Report) Failed() error {
	refused := false
	for i := range r.Nodes {
		switch r.Nodes[i].State {
		case Answers:
			return nil
		case Refused:
			refused = true
		}
	}
	if refused {
		return cli.WithCode(cli.ExitForbidden, errors.New("no machine accepts the certificates of this bundle; is it this cluster's?"))
	}
	return errors.New("no machine of the cluster answers; check power and network, and name control planes with --nodes")
}
