// SPDX-License-Identifier: Apache-2.0

package kubeletcertificate

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"maesh.dev/ichor/pkg/apis/ichor/v1alpha1"
)

// writeTimeout bounds the writing of one decision.
const writeTimeout = 15 * time.Second

// Reconcile judges one request, and says when to look again.
func (c *Controller) Reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	csr, err := c.requests.Get(name)
	if apierrors.IsNotFound(err) {
		c.forget(name)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read certificate signing request %s: %w", name, err)
	}
	machines, err := c.machines.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list machines: %w", err)
	}
	judged := judge(csr, surroundings{machines, func(name string) *v1alpha1.TalosCluster {
		cluster, err := c.clusters.Get(name)
		if err != nil {
			return nil
		}
		return cluster
	}})
	switch judged.verdict {
	case approve, deny:
		return 0, c.decide(ctx, csr, judged)
	case hold:
		c.tellWaiting(csr, judged)
		return lookAgain, nil
	default:
		c.forget(name)
		return 0, nil
	}
}

// decide writes the decision on the very version of the request that was judged.
func (c *Controller) decide(ctx context.Context, csr *certificatesv1.CertificateSigningRequest, judged judgement) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	condition := certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: reasonApproved,
		Message: fmt.Sprintf("TalosMachine %s: %s", judged.machine.Name, judged.message), LastUpdateTime: metav1.Now(),
	}
	kind, reason, label, format := corev1.EventTypeNormal, reasonApproved, "approved", "the kubelet gets a serving certificate (request %s): %s"
	if judged.verdict == deny {
		condition.Type, condition.Reason = certificatesv1.CertificateDenied, judged.reason
		kind, reason, label, format = corev1.EventTypeWarning, reasonDenied, "denied", "the certificate signing request %s was denied: %s"
	}
	changed := csr.DeepCopy()
	changed.Status.Conditions = append(changed.Status.Conditions, condition)
	if _, err := c.client.CertificateSigningRequests().UpdateApproval(ctx, csr.Name, changed, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("decide on certificate signing request %s of machine %s: %w", csr.Name, judged.machine.Name, err)
	}
	c.forget(csr.Name)
	decisions.WithLabelValues(label).Inc()
	c.recorder.Eventf(judged.machine, kind, reason, format, csr.Name, judged.message)
	return nil
}

// tellWaiting says once why a request isn't approved: on the machine, where a person looks, and on the request.
func (c *Controller) tellWaiting(csr *certificatesv1.CertificateSigningRequest, judged judgement) {
	c.mu.Lock()
	news := c.told[csr.Name] != judged.message
	c.told[csr.Name] = judged.message
	waiting.Set(float64(len(c.told)))
	c.mu.Unlock()
	if !news {
		return
	}
	c.recorder.Eventf(judged.machine, corev1.EventTypeWarning, reasonWaiting, "the serving certificate that the kubelet asks for (request %s) is not approved: %s", csr.Name, judged.message)
	request := &corev1.ObjectReference{APIVersion: certificatesv1.SchemeGroupVersion.String(), Kind: "CertificateSigningRequest", Name: csr.Name, UID: csr.UID}
	c.recorder.Eventf(request, corev1.EventTypeWarning, reasonWaiting, "TalosMachine %s: %s", judged.machine.Name, judged.message)
}

// waits tells whether a request is known to wait.
func (c *Controller) waits(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.told[name]
	return known
}

func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.told, name)
	waiting.Set(float64(len(c.told)))
}
