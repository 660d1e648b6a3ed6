// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/pprof"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"maesh.dev/ichor/apiserver"
	"maesh.dev/ichor/test/bench/api/rival"
)

// serveEtcd is one member of etcd as clusters have it: it syncs what it writes to the disk.
func serveEtcd(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: api etcd DIR")
	}
	etcd, err := apiserver.StartEmbeddedEtcd(ctx, args[0])
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return fmt.Errorf("etcd: %w", err)
	}
}

// serveWebhook is the rival's webhook.
func serveWebhook(ctx context.Context, args []string) error {
	set := flag.NewFlagSet("webhook", flag.ContinueOnError)
	address := set.String("address", "", "where to listen")
	cert := set.String("cert", "", "file with the certificate")
	key := set.String("key", "", "file with its key")
	kubeconfig := set.String("kubeconfig", "", "file by which the kube-apiserver is reached")
	counts := set.Bool("counts", false, "serve the gates that count, too")
	if err := set.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("webhook's kubeconfig: %w", err)
	}
	config.QPS = -1
	clusters, err := rival.NewClusters(config)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /"+rival.GateSwap, rival.Handler(rival.NewSwapGate(clusters).Admit))
	if *counts {
		live, err := rival.LiveCount(config)
		if err != nil {
			return err
		}
		mux.Handle("POST /"+rival.GateLive, rival.Handler(rival.CountGate{Clusters: clusters, Count: live}.Admit))
		cached, err := rival.CachedCount(ctx, config)
		if err != nil {
			return err
		}
		mux.Handle("POST /"+rival.GateCache, rival.Handler(rival.CountGate{Clusters: clusters, Count: cached}.Admit))
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	server := &http.Server{
		Addr: *address, Handler: mux, ReadHeaderTimeout: time.Minute,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13},
	}
	go func() {
		<-ctx.Done()
		_ = server.Close() // nobody waits for an answer any more
	}()
	if err := server.ListenAndServeTLS(*cert, *key); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}
