// SPDX-License-Identifier: Apache-2.0

package localstack

import (
	"context"
	"fmt"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
	"maesh.dev/ichor/pkg/client/clientset/versioned"
	"maesh.dev/ichor/test/hollow/fleet"
)

// Suggestion is something to try next.
type Suggestion struct {
	// Text says what for.
	Text string
	// Command is a line for a shell. The first suggestion sets the shell up for the others.
	Command string
}

// Suggestions are what a newcomer can try, ready to be pasted into one shell, in this order.
func (s *Stack) Suggestions() []Suggestion { return s.suggestions }

func (s *Stack) suggest(ctx context.Context) ([]Suggestion, error) {
	machine, disk, hostname, err := s.waiting(ctx)
	if err != nil {
		return nil, err
	}
	out := []Suggestion{
		{
			"kubectl, ichor and an administrator's kubeconfig, for one shell",
			fmt.Sprintf(`eval "$(%s env --state %s)"`, quote(filepath.Join(s.options.BinDir, "localstack")), quote(string(s.dir))),
		},
		{"the machines that were found", "kubectl get talosmachines"},
		{"what can be decided about a machine's network", "kubectl explain talosmachine.spec.network"},
	}
	if machine == "" {
		return out, nil
	}
	return append(out,
		Suggestion{"one of them, with its disks and links", "ichor machine show " + machine},
		Suggestion{
			"approve it as a worker, as an operator would",
			fmt.Sprintf("ichor --kubeconfig %s machine approve %s --role worker --install-disk %s --hostname %s --yes --wait=false",
				quote(s.dir.KubeconfigOf("operator")), machine, quote(disk), hostname),
		},
		Suggestion{"watch it install, reboot and join", "kubectl wait --for=condition=Ready talosmachine/" + machine + " --timeout=5m"},
		Suggestion{"its Node", "kubectl get nodes -o wide"},
		Suggestion{
			"something that runs on it",
			"kubectl create deployment hello --image=hello:1 && kubectl wait --for=condition=Available deployment/hello --timeout=2m",
		},
		Suggestion{"the disk Talos was installed on", "kubectl get talosmachine " + machine + ` -o jsonpath='{.status.systemDisk}{"\n"}'`},
		Suggestion{
			"your approval in the audit log of the kube-apiserver",
			fmt.Sprintf(`grep '"subresource":"approval"' %s | grep '"name":"%s"'`, quote(s.dir.AuditLog()), machine),
		},
		Suggestion{"everything on one screen", "ichor status"},
	), nil
}

// waiting is the name of a machine that a person can approve, empty if the fleet has none, a disk of it that can be
// installed on, and a hostname that is free.
func (s *Stack) waiting(ctx context.Context) (machine, disk, hostname string, err error) {
	client, err := versioned.NewForConfig(s.admin)
	if err != nil {
		return "", "", "", fmt.Errorf("client for machines: %w", err)
	}
	machines, err := client.IchorV1alpha1().TalosMachines().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", "", "", fmt.Errorf("list the machines that wait: %w", err)
	}
	taken := map[string]bool{}
	for i := range machines.Items {
		taken[machines.Items[i].Spec.Hostname] = true
	}
	for n := 1; hostname == "" || taken[hostname]; n++ {
		hostname = fmt.Sprintf("worker-%d", n)
	}
	for i := range s.fleet.Machines {
		m := &s.fleet.Machines[i]
		if m == s.first || m.State != fleet.StateMaintenance {
			continue
		}
		found := at(machines.Items, m.Addr())
		if found == nil || found.Spec.ApprovalState != v1alpha1.ApprovalPending || !isTrue(found.Status.Conditions, v1alpha1.ConditionIdentityResolved) {
			continue
		}
		match, err := systemDisk(m)
		if err != nil {
			continue
		}
		return found.Name, diskArgument(match), hostname, nil
	}
	return "", "", hostname, nil
}

// diskArgument is how the command line names a disk.
func diskArgument(match v1alpha1.DiskMatch) string {
	if match.Serial != "" {
		return match.Serial
	}
	return match.WWID
}
