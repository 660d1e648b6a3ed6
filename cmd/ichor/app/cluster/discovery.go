// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"maesh.dev/ichor/cmd/ichor/internal/cli"
	"maesh.dev/ichor/cmd/ichor/internal/lookup"
	"maesh.dev/ichor/cmd/ichor/internal/output"
	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
)

// place is where to look for machines: a subnet or one address, in canonical spelling.
type place struct {
	text   string
	subnet bool
}

// parsePlaces reads subnets and addresses. All that are wrong are told at once.
func parsePlaces(args []string) ([]place, error) {
	var places []place
	for _, arg := range args {
		if address, err := netip.ParseAddr(arg); err == nil {
			places = append(places, place{text: address.String()})
			continue
		}
		prefix, err := netip.ParsePrefix(arg)
		switch {
		case err != nil:
			return nil, cli.Usagef("%q is neither a subnet (10.0.0.0/24) nor an address (10.0.9.7)", arg)
		case prefix != prefix.Masked():
			return nil, cli.Usagef("%s is an address inside %s: say %s for the whole subnet, or %s for the one address", arg, prefix.Masked(), prefix.Masked(), prefix.Addr())
		}
		places = append(places, place{text: prefix.String(), subnet: true})
	}
	return places, nil
}

// isListed tells whether a place is looked at already.
func isListed(discovery *v1alpha1.Discovery, wanted place) bool {
	if wanted.subnet {
		return slices.ContainsFunc(discovery.Subnets, func(subnet v1alpha1.DiscoverySubnet) bool { return subnet.CIDR == wanted.text })
	}
	return slices.Contains(discovery.Addresses, wanted.text)
}

func add(discovery *v1alpha1.Discovery, wanted place) {
	if wanted.subnet {
		discovery.Subnets = append(discovery.Subnets, v1alpha1.DiscoverySubnet{CIDR: wanted.text})
		return
	}
	discovery.Addresses = append(discovery.Addresses, wanted.text)
}

func remove(discovery *v1alpha1.Discovery, unwanted place) {
	if unwanted.subnet {
		discovery.Subnets = slices.DeleteFunc(discovery.Subnets, func(subnet v1alpha1.DiscoverySubnet) bool { return subnet.CIDR == unwanted.text })
		return
	}
	discovery.Addresses = slices.DeleteFunc(discovery.Addresses, func(address string) bool { return address == unwanted.text })
}

// discoveryEdit is a verb that changes where to look: add and remove differ in two functions and in their words.
type discoveryEdit struct {
	env     *cli.Env
	cluster string
	dryRun  cli.DryRun
	print   *output.Objects
	// needed tells whether a place is still to be changed, change does it.
	needed func(*v1alpha1.Discovery, place) bool
	change func(*v1alpha1.Discovery, place)
	verbed string
	// already says that there was nothing to do.
	already string
}

func (e *discoveryEdit) addFlags(cmd *cobra.Command) {
	addClusterFlag(cmd, e.env, &e.cluster)
	e.dryRun.AddFlag(cmd)
	e.print.AddFlags(cmd)
}

func addClusterFlag(cmd *cobra.Command, env *cli.Env, cluster *string) {
	cmd.Flags().StringVar(cluster, "cluster", "", "The TalosCluster. Defaults to the only one there is.")
	_ = cmd.RegisterFlagCompletionFunc("cluster", lookup.CompleteClusters(env))
}

// named takes the cluster from a word instead of --cluster.
func named(args []string, cluster *string) error {
	if len(args) == 0 {
		return nil
	}
	if *cluster != "" && *cluster != args[0] {
		return cli.Usagef("two clusters are named, %s and --cluster %s", args[0], *cluster)
	}
	*cluster = args[0]
	return nil
}

func (e *discoveryEdit) run(ctx context.Context, args []string) error {
	for _, err := range []error{e.print.Check(), e.dryRun.Check()} {
		if err != nil {
			return err
		}
	}
	places, err := parsePlaces(args)
	if err != nil {
		return err
	}
	client, err := e.env.Client()
	if err != nil {
		return err
	}
	cluster, err := lookup.FetchCluster(ctx, client, e.cluster)
	if err != nil {
		return err
	}
	changed, result, err := e.patch(ctx, client, cluster.Name, places)
	if err != nil {
		return err
	}
	for _, place := range places {
		said := e.already
		if slices.Contains(changed, place) {
			said = e.verbed + e.dryRun.Note()
		}
		e.env.Infof("%s %s", place.text, said)
	}
	if len(changed) == 0 {
		return e.print.PrintUnchanged(e.env, result)
	}
	return e.print.Print(e.env, result, e.dryRun.Note())
}

// patch changes the two lists by a JSON merge patch that is bound to the version it was made from, so that what others
// add at the same time isn't lost; on a conflict it is made anew.
func (e *discoveryEdit) patch(ctx context.Context, client versioned.Interface, name string, places []place) (changed []place, result *v1alpha1.TalosCluster, err error) {
	clusters := client.IchorV1alpha1().TalosClusters()
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cluster, err := clusters.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		changed = nil
		discovery := cluster.Spec.Discovery.DeepCopy()
		for _, place := range places {
			if e.needed(discovery, place) {
				e.change(discovery, place)
				changed = append(changed, place)
			}
		}
		if result = cluster; len(changed) == 0 {
			return nil
		}
		body, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": cluster.ResourceVersion},
			"spec":     map[string]any{"discovery": map[string]any{"subnets": discovery.Subnets, "addresses": discovery.Addresses}},
		})
		if err != nil {
			return fmt.Errorf("encode the change of %s: %w", name, err)
		}
		options := metav1.PatchOptions{DryRun: e.dryRun.Options(), FieldManager: cli.FieldManager}
		result, err = clusters.Patch(ctx, name, types.MergePatchType, body, options)
		return err
	})
	return changed, result, err
}
