// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"maesh.dev/ichor/test/hollow/facts"
)

// loadState takes identity and configuration from STATE, as a machine does at each boot; without STATE it makes an
// identity that lives in memory until there is a disk for it.
func (b *boot) loadState(ctx context.Context) error {
	installed, err := b.installed()
	if err != nil {
		return err
	}
	if installed == nil {
		return b.newIdentity()
	}
	id, err := b.node.folder.Identity()
	if err != nil {
		return fmt.Errorf("read the node identity: %w", err)
	}
	b.mu.Lock()
	b.nodeID = id
	b.mu.Unlock()
	if id == "" {
		if err := b.newIdentity(); err != nil {
			return err
		}
		if err := b.node.folder.WriteIdentity(b.identityNow()); err != nil {
			return err
		}
	}
	data, err := b.node.folder.Config()
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if data == nil {
		return nil
	}
	cfg, err := b.parseConfig(data)
	if err != nil {
		b.ring.Publish(ctx, &machine.ConfigLoadErrorEvent{Error: err.Error()})
		return fmt.Errorf("load the configuration from STATE: %w", err)
	}
	b.mu.Lock()
	b.persistent = cfg
	b.mu.Unlock()
	b.activate(cfg)
	return nil
}

// newIdentity is a random id of 32 bytes in base62, as Talos writes it.
func (b *boot) newIdentity() error {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return fmt.Errorf("make a node identity: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodeID = new(big.Int).SetBytes(raw).Text(62)
	return nil
}

func (b *boot) identityNow() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodeID
}

// activate makes a configuration the running one. The first that is complete for boot ends maintenance.
func (b *boot) activate(cfg config.Provider) {
	b.mu.Lock()
	b.active = cfg
	b.hostname, b.domainname = effectiveHostname(cfg, b.nodeID, b.node.options.Machine.Hostname)
	if cfg.CompleteForBoot() {
		select {
		case <-b.complete:
		default:
			close(b.complete)
		}
	}
	rt := b.runtime
	b.mu.Unlock()
	if rt != nil {
		rt.UpdateConfig(cfg)
	}
	b.publishControlPlane()
	b.refresh()
}

// persist makes a configuration the one that the next boot starts with. Before anything is installed there is no disk
// for it: a power cut then loses it.
func (b *boot) persist(cfg config.Provider) error {
	data, err := cfg.Bytes()
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	installed, err := b.installed()
	if err != nil {
		return err
	}
	if installed != nil {
		if err := b.node.folder.WriteConfig(data); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.persistent = cfg
	b.mu.Unlock()
	b.refresh()
	return nil
}

// configured tells whether the active configuration is complete for boot.
func (b *boot) configured() bool {
	select {
	case <-b.complete:
		return true
	default:
		return false
	}
}

// activeConfig is the running configuration, nil if there is none.
func (b *boot) activeConfig() config.Provider {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active
}

// isControlPlane tells whether a configuration makes this machine a control plane.
func (b *boot) isControlPlane() bool {
	cfg := b.activeConfig()
	return cfg != nil && cfg.CompleteForBoot() && cfg.Machine().Type().IsControlPlane()
}

// publishControlPlane tells discovery where this control plane is.
func (b *boot) publishControlPlane() {
	cfg := b.activeConfig()
	if !b.isControlPlane() || cfg.Cluster() == nil {
		return
	}
	b.mu.Lock()
	peer := facts.Peer{NodeID: b.nodeID, Hostname: b.hostname, Version: b.slot.Version, APIPort: cfg.Cluster().LocalAPIServerPort()}
	b.mu.Unlock()
	peer.Address = b.address().Addr()
	b.node.options.Discovery.publish(cfg.Cluster().ID(), b.node.Name(), peer)
}

// discovered follows a change of what discovery knows; it returns at once.
func (b *boot) discovered() {
	b.api.kick()
	if b.isControlPlane() {
		b.spawn(func(context.Context) { b.refresh() })
	}
}

// effectiveHostname follows Talos' layers: the configuration's name, else what DHCP gave, else the automatic one.
func effectiveHostname(cfg config.Provider, nodeID, fromDHCP string) (hostname, domainname string) {
	split := func(name string) (string, string) {
		host, domain, _ := strings.Cut(name, ".")
		return host, domain
	}
	var named talosconfig.NetworkHostnameConfig
	if cfg != nil {
		named = cfg.NetworkHostnameConfig()
	}
	switch {
	case named != nil && named.Hostname() != "":
		return split(named.Hostname())
	case fromDHCP != "":
		return split(fromDHCP)
	case named == nil:
		return "", ""
	}
	switch named.AutoHostname() {
	case nethelpers.AutoHostnameKindStable:
		return stableHostname(nodeID), ""
	case nethelpers.AutoHostnameKindAddr:
		if a := staticAddress(cfg); a.IsValid() {
			return "talos-" + strings.ReplaceAll(a.Addr().String(), ".", "-"), ""
		}
	}
	return "", ""
}

// stableHostname is talos-abc-def, from a hash of the identity (Talos: controllers/network/hostname_config.go).
func stableHostname(nodeID string) string {
	sum := sha256.Sum256([]byte(nodeID))
	text := new(big.Int).SetBytes(sum[:8]).Text(36)
	for len(text) < 7 {
		text = "0" + text
	}
	return fmt.Sprintf("talos-%s-%s", text[1:4], text[4:7])
}

// staticAddress is the first loopback address that the configuration gives to a link, invalid if there is none: only such
// an address can be taken here.
func staticAddress(cfg config.Provider) netip.Prefix {
	if cfg == nil {
		return netip.Prefix{}
	}
	for _, link := range cfg.NetworkCommonLinkConfigs() {
		for _, a := range link.Addresses() {
			if usable(a.Address()) {
				return a.Address()
			}
		}
	}
	if cfg.RawV1Alpha1() == nil || cfg.Machine() == nil || cfg.Machine().Network() == nil {
		return netip.Prefix{}
	}
	for _, device := range cfg.Machine().Network().Devices() {
		for _, text := range device.Addresses() {
			if p, err := netip.ParsePrefix(text); err == nil && usable(p) {
				return p
			}
		}
	}
	return netip.Prefix{}
}

var loopback = netip.MustParsePrefix("127.0.0.0/8")

func usable(p netip.Prefix) bool { return p.IsValid() && loopback.Contains(p.Addr()) }

// errNoConfig tells that an operation needs a configuration.
var errNoConfig = errors.New("the machine has no configuration")
