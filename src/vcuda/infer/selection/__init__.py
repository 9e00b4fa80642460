"""What is chosen when nobody says: the model and the scale of the columns by evidence, the engine by size.

``models`` compares by ``evidence`` and tells it in sentences, ``logarithms`` decides the scale of each column,
``engines`` knows from where on which engine serves best.
"""
