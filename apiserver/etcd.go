// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	// etcdStartTimeout bounds how long the embedded member may take to serve.
	etcdStartTimeout = time.Minute
	// maxSocketPath is what a UNIX socket's address may be long on every system.
	maxSocketPath = 100
	// etcdQuota is the size of the database at which writes are refused: etcd's suggested maximum.
	etcdQuota = 8 << 30
)

// EmbeddedEtcd is one etcd member in the process. It listens on UNIX sockets in a directory that only the process's
// user can enter, because who reaches etcd is root over everything in it.
type EmbeddedEtcd struct {
	// Endpoint is the URL for clients.
	Endpoint string

	member *embed.Etcd
	level  zap.AtomicLevel
	remove string
}

// StartEmbeddedEtcd starts a member with its data in the directory, which is made if it isn't there. Tests change its
// configuration.
func StartEmbeddedEtcd(ctx context.Context, dir string, changes ...func(*embed.Config)) (*EmbeddedEtcd, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make etcd directory: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	e := &EmbeddedEtcd{level: zap.NewAtomicLevelAt(zap.WarnLevel)}
	sockets := dir
	if len(filepath.Join(sockets, "client.sock")) > maxSocketPath {
		if sockets, err = os.MkdirTemp("", "ichor-etcd-"); err != nil {
			return nil, fmt.Errorf("make directory for etcd's sockets: %w", err)
		}
		e.remove = sockets
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "client.sock")}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "peer.sock")}
	e.Endpoint = client.String()

	config := embed.NewConfig()
	config.Name = "ichor"
	config.Dir = filepath.Join(dir, "data")
	logging := zap.NewProductionConfig()
	logging.Level, logging.OutputPaths, logging.DisableStacktrace = e.level, []string{"stderr"}, true
	logger, err := logging.Build()
	if err != nil {
		return nil, fmt.Errorf("make etcd's logger: %w", err)
	}
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger.Named("etcd"))
	config.QuotaBackendBytes = etcdQuota
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.EnableGRPCGateway = false
	config.WatchProgressNotifyInterval = 5 * time.Second
	for _, change := range changes {
		change(config)
	}

	if e.member, err = embed.StartEtcd(config); err != nil {
		e.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(ctx, etcdStartTimeout)
	defer cancel()
	select {
	case <-e.member.Server.ReadyNotify():
		return e, nil
	case err := <-e.member.Err():
		e.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", dir, err)
	case <-ctx.Done():
		e.Close()
		return nil, fmt.Errorf("start etcd in %s: not ready: %w", dir, ctx.Err())
	}
}

// Err tells of a failure of the running member.
func (e *EmbeddedEtcd) Err() <-chan error { return e.member.Err() }

// Close stops the member and waits for it. What etcd then says about its closed listeners is no error.
func (e *EmbeddedEtcd) Close() {
	e.level.SetLevel(zap.FatalLevel)
	if e.member != nil {
		e.member.Close()
	}
	if e.remove != "" {
		_ = os.RemoveAll(e.remove) // nothing but sockets, and a leftover harms nobody
	}
}
