"""Ways to carry out steps that are measured on no GPU yet: recorded steps, and a choice by measurement."""
